//! How fast the simulator is: ten minutes of ShareGPT lengths at 6 requests per second, on one core.

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use sim::run::plan::Plan;
use sim::run::serve::{Discard, serve};
use sim::scenario::load::Loaded;

fn poisson_600s(criterion: &mut Criterion) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/bench/poisson_600s.yaml");
    let plan = Plan::new(Loaded::read(path.as_ref(), &[]).expect("a scenario").scenario).expect("a plan");
    let mut group = criterion.benchmark_group("poisson_600s");
    group.sample_size(10).measurement_time(Duration::from_secs(5));
    for planned in &plan.schedulers {
        group.bench_function(&planned.name, |bencher| {
            bencher.iter(|| {
                let Ok(recorder) = serve(&plan, planned, &mut Discard);
                recorder.metrics()
            });
        });
    }
}

criterion_group!(benches, poisson_600s);
criterion_main!(benches);
