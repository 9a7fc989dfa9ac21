//! The conformance suite with the CPU executor as its oracle.

use std::collections::BTreeMap;

use engine::architecture::Architecture;
use engine::live::Transcripts;
use engine::live::conformance::{self, Case, Group, compare, groups, hear, play};
use engine::live::cpu::{CpuExecutor, CpuOptions, bf16};
use engine::live::cuda::{CudaDevice, CudaExecutor, CudaModel, CudaOptions, WeightSource};
use engine::live::weights::Weights;
use engine::models::criterion::Criterion;

/// Two bf16 computations of a random model part ways by as much; `rounding_is_all_that_differs` shows that neither is
/// nearer to the truth.
fn tolerance(model: &str) -> f64 {
    if model == "tiny-ouro" { 0.05 } else { 0.12 }
}

fn cpu(architecture: &Architecture, weights: &Weights, group: &Group, case: &Case) -> Transcripts {
    let options = CpuOptions { threads: 2, ..CpuOptions::default() };
    let mut executor = CpuExecutor::<bf16>::new(architecture, weights, case.config(group), options).unwrap();
    play(&mut executor, group, case).unwrap();
    executor.transcripts().clone()
}

/// The whole suite: invariance demands batch-invariant mode. Weights are made on the device from the same seed.
fn conforms(model: &str, graphs: bool) {
    conforms_of(Architecture::builtin(model).unwrap(), graphs);
}

fn conforms_of(architecture: Architecture, graphs: bool) {
    let weights = Weights::random(&architecture, 11);
    let device = CudaDevice::open(0).unwrap();
    let on_device = CudaModel::new(&device, &architecture, WeightSource::Random { seed: 11 }).unwrap();
    let options = CudaOptions { batch_invariant: true, graphs };
    let mut known: BTreeMap<String, Transcripts> = BTreeMap::new();
    let report = conformance::run(
        &architecture,
        |config| CudaExecutor::new(&on_device, config, options),
        |group, case| {
            let key = format!("{} {:?}", group.name, case.chunks);
            known.entry(key).or_insert_with(|| cpu(&architecture, &weights, group, case)).clone()
        },
        tolerance(&architecture.name),
    )
    .unwrap_or_else(|failure| panic!("{failure}"));
    let model = &architecture.name;
    println!("{model}, graphs {graphs}: {} cases, largest error {:.2e}", report.cases.len(), report.max_error());
}

#[test]
#[ignore = "needs a CUDA device"]
fn ouro_conforms() {
    conforms("tiny-ouro", true);
}

#[test]
#[ignore = "needs a CUDA device"]
fn huginn_conforms() {
    conforms("tiny-huginn", true);
}

#[test]
#[ignore = "needs a CUDA device"]
fn kernels_launched_one_by_one_conform() {
    conforms("tiny-ouro", false);
    conforms("tiny-huginn", false);
}

#[test]
#[ignore = "needs a CUDA device"]
fn the_other_families_conform() {
    for name in ["tiny-nanbeige", "tiny-recurrent-llama", "tiny-recurrent-olmo"] {
        conforms(name, true);
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_family_takes_one_file() {
    conforms_of(crate::made_up::made_up(), true);
}

/// As in the CPU's tests: what a config may say and the released models do not.
#[test]
#[ignore = "needs a CUDA device"]
fn models_unlike_the_released_ones_conform() {
    for (name, kv_heads) in [("tiny-ouro", 2), ("tiny-huginn", 1)] {
        let model = Architecture::builtin(name).unwrap();
        let tied_head = Some(!model.tied_head());
        let (kv_heads, rope_theta, norm_epsilon) = (Some(kv_heads), Some(1e3), Some(1e-2));
        conforms_of(Architecture { kv_heads, rope_theta, norm_epsilon, tied_head, ..model }, true);
    }
}

/// The fast mode, in which cuBLASLt multiplies large batches, agrees with the CPU too, from loaded weights.
#[test]
#[ignore = "needs a CUDA device"]
fn the_fast_mode_agrees_with_the_cpu() {
    for model in ["tiny-ouro", "tiny-huginn"] {
        let architecture = Architecture::builtin(model).unwrap();
        let weights = Weights::random(&architecture, 11);
        let device = CudaDevice::open(0).unwrap();
        let on_device = CudaModel::new(&device, &architecture, WeightSource::Loaded(&weights)).unwrap();
        let mut largest: f64 = 0.0;
        for group in groups(&architecture) {
            for case in &group.cases {
                let config = case.config(&group);
                let mut executor = CudaExecutor::new(&on_device, config, CudaOptions::default()).unwrap();
                play(&mut executor, &group, case).unwrap_or_else(|failure| panic!("{failure}"));
                let expected = cpu(&architecture, &weights, &group, case);
                let comparison = compare(&expected, executor.transcripts(), tolerance(model));
                let comparison =
                    comparison.unwrap_or_else(|mismatch| panic!("{}, {}: {mismatch}", group.name, case.name));
                largest = largest.max(comparison.max_error);
            }
        }
        println!("{model}, fast mode: largest error {largest:.2e}");
    }
}

/// The suite checks outputs' scores against their logits; prompts' come from logits that nobody keeps.
#[test]
#[ignore = "needs a CUDA device"]
fn prompts_are_as_probable_as_on_the_cpu() {
    for model in ["tiny-ouro", "tiny-huginn"] {
        let architecture = Architecture::builtin(model).unwrap();
        let weights = Weights::random(&architecture, 11);
        let device = CudaDevice::open(0).unwrap();
        let on_device = CudaModel::new(&device, &architecture, WeightSource::Loaded(&weights)).unwrap();
        let (mut squares, mut count, mut size) = (0.0, 0, 0.0_f64);
        for group in groups(&architecture) {
            let case = &group.cases[0];
            let options = CpuOptions { threads: 2, ..CpuOptions::default() };
            let mut cpu = CpuExecutor::<bf16>::new(&architecture, &weights, case.config(&group), options).unwrap();
            let mut gpu = CudaExecutor::new(&on_device, case.config(&group), CudaOptions::default()).unwrap();
            let expected = play(&mut cpu, &group, case).unwrap();
            let got = play(&mut gpu, &group, case).unwrap_or_else(|failure| panic!("{failure}"));
            for ((request, expected), (_, got)) in expected.iter().zip(got.iter()) {
                assert_eq!(expected.len(), got.len(), "{}: request {}", group.name, request.0);
                for (expected, got) in expected.iter().zip(got) {
                    assert_eq!((expected.at, expected.id), (got.at, got.id), "{}: request {}", group.name, request.0);
                    squares += f64::from(expected.logprob - got.logprob).powi(2);
                    count += 1;
                }
            }
            for (_, transcript) in cpu.transcripts().iter() {
                for logits in &transcript.logits {
                    let mean_square = logits.iter().map(|x| f64::from(x * x)).sum::<f64>() / logits.len() as f64;
                    size = size.max(mean_square.sqrt());
                }
            }
        }
        // As far as one logit is off, and the logarithm of the sum of all.
        let (error, allowed) = ((squares / f64::from(count)).sqrt(), 2.0 * tolerance(model) * size);
        println!("{model}: {count} prompt tokens, log-probabilities differ by {error:.2e}");
        assert!(count > 100 && error < allowed, "{model}: {error}, allowed are {allowed}");
    }
}

/// Against the CPU in f32, the GPU's error is the CPU's own in bf16.
#[test]
#[ignore = "needs a CUDA device"]
fn rounding_is_all_that_differs() {
    for model in ["tiny-ouro", "tiny-huginn"] {
        let architecture = Architecture::builtin(model).unwrap();
        let device = CudaDevice::open(0).unwrap();
        let (mut on_cpu, mut on_gpu) = (0.0, 0.0);
        for seed in 11..15 {
            let weights = Weights::random(&architecture, seed);
            let on_device = CudaModel::new(&device, &architecture, WeightSource::Random { seed }).unwrap();
            for group in groups(&architecture) {
                let case = &group.cases[0];
                let options = CpuOptions { threads: 2, ..CpuOptions::default() };
                let mut exact = CpuExecutor::<f32>::new(&architecture, &weights, case.config(&group), options).unwrap();
                play(&mut exact, &group, case).unwrap();
                let options = CudaOptions { graphs: false, ..CudaOptions::default() };
                let mut gpu = CudaExecutor::new(&on_device, case.config(&group), options).unwrap();
                play(&mut gpu, &group, case).unwrap();
                // A tolerance of 1 compares up to the first token that differs.
                let error = |got: &Transcripts| compare(exact.transcripts(), got, 1.0).unwrap().max_error;
                on_cpu += error(&cpu(&architecture, &weights, &group, case));
                on_gpu += error(gpu.transcripts());
            }
        }
        println!(
            "{model}: mean largest error against f32: {:.2e} on the CPU, {:.2e} on the GPU",
            on_cpu / 24.0,
            on_gpu / 24.0
        );
        assert!(on_gpu < 1.3 * on_cpu, "{model}: {on_gpu} against {on_cpu}");
    }
}

/// What the device tells of every loop lies as near to the CPU's as two bf16 computations do; `readout.rs` has the kernel's
/// own test, on given logits.
#[test]
#[ignore = "needs a CUDA device"]
fn exit_signals_conform() {
    let device = CudaDevice::open(0).unwrap();
    for name in ["tiny-huginn", "tiny-recurrent-llama", "tiny-nanbeige", "tiny-ouro"] {
        let architecture = Architecture::builtin(name).unwrap();
        let weights = Weights::random(&architecture, 11);
        let on_device = CudaModel::new(&device, &architecture, WeightSource::Random { seed: 11 }).unwrap();
        for criterion in Criterion::ALL {
            if criterion == Criterion::Hazard && name != "tiny-ouro" {
                continue;
            }
            for graphs in [true, false] {
                let error = conformance::run_signals(
                    &architecture,
                    criterion,
                    |config| CudaExecutor::new(&on_device, config, CudaOptions { batch_invariant: true, graphs }),
                    |group, case, config| {
                        let options = CpuOptions { threads: 2, ..CpuOptions::default() };
                        let executor = CpuExecutor::<bf16>::new(&architecture, &weights, config, options).unwrap();
                        hear(&architecture, executor, group, case).unwrap()
                    },
                    if criterion == Criterion::ArgmaxStability { 0.1 } else { 0.05 },
                );
                let error = error.unwrap_or_else(|failure| panic!("{failure}"));
                let (compared, largest) = (error.compared, error.max_error);
                println!("{name}, {}, graphs {graphs}: {compared} signals, error {largest:.1e}", criterion.name());
                assert!(compared > 60, "{name}: {compared} signals");
            }
        }
    }
}
