use engine::metrics::RequestRecord;
use engine::request::RequestId;
use engine::units::Nanos;
fn main() {
    for n in [36_000u32, 1_000_000] {
        let t = std::time::Instant::now();
        let mut w = reports::RequestsWriter::create(std::path::Path::new("/tmp/rq/requests.parquet")).unwrap();
        for id in 0..n {
            let j = (u64::from(id)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let a = u64::from(id) * 166_000_000;
            let o = (j % 500) as u32 + 1;
            w.push(
                "continuous batching",
                &RequestRecord {
                    request: RequestId(id),
                    arrival: Nanos(a),
                    admitted: Nanos(a + j * 100),
                    first_token: Nanos(a + j * 300 + 77),
                    finish: Nanos(a + j * 300 + 77 + u64::from(o) * (j + 1000)),
                    prompt_tokens: (j % 800) as u32 + 1,
                    output_tokens: o,
                    depth_sum: u64::from(o) * 3,
                    preemptions: 0,
                },
            )
            .unwrap();
        }
        w.finish().unwrap();
        let rss = std::fs::read_to_string("/proc/self/status")
            .unwrap()
            .lines()
            .find(|l| l.starts_with("VmHWM"))
            .unwrap()
            .to_string();
        println!("{n} {:?} {rss} {} bytes", t.elapsed(), std::fs::metadata("/tmp/rq/requests.parquet").unwrap().len());
    }
}
