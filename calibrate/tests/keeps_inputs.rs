//! No command writes over a file that it reads, and then nothing is written at all.

use std::process::Command;

#[test]
fn inputs_stay() {
    let folder = tempfile::tempdir().unwrap();
    // The check comes before any of them is read.
    let names = ["base.yaml", "m.csv", "p_latency.svg", "t.parquet"];
    for name in names {
        std::fs::write(folder.path().join(name), name).unwrap();
    }
    let refuses = |arguments: &[&str], said: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_calibrate"));
        let ran = command.args(arguments).current_dir(folder.path()).env("NO_COLOR", "1").output().unwrap();
        let stderr = String::from_utf8(ran.stderr).unwrap().replace(['│', '×'], " ");
        let words = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!((ran.status.code(), ran.stdout.len()), (Some(2), 0), "{arguments:?}: {words}");
        assert!(words.contains(said), "{arguments:?}: `{said}` is not in {words}");
        let mut left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, names);
        for name in names {
            assert_eq!(std::fs::read_to_string(folder.path().join(name)).unwrap(), name, "{arguments:?}");
        }
    };
    let fit = ["--model", "tiny-ouro", "--device", "h200", "--out"];
    let fits = |table: &'static str, out: &'static str| [&["fit", table], &fit[..], &[out]].concat();
    refuses(&fits("m.csv", "m.csv"), "--out: m.csv would be written over, and it is read as m.csv");
    refuses(&fits("./m.csv", "m.csv"), "m.csv would be written over, and it is read as ./m.csv");
    // What lies beside the profile counts, too.
    refuses(&fits("t.parquet", "t.yaml"), "t.parquet would be written over");
    refuses(&fits("p_latency.svg", "p.yaml"), "p_latency.svg would be written over");
    refuses(&fits("m.csv", "q.parquet"), "would be written to the same place");
    refuses(&[&fits("m.csv", "base.yaml")[..], &["--base", "base.yaml"]].concat(), "base.yaml would be written over");
    refuses(&["adjust", "base.yaml", "m.csv", "--out", "base.yaml"], "base.yaml would be written over");
    refuses(&["adjust", "base.yaml", "m.csv", "--out", "m.csv"], "m.csv would be written over");
    refuses(&["check", "base.yaml", "--device", "cpu", "--out", "base.yaml"], "base.yaml would be written over");
    let measure = ["--model", "tiny-ouro", "--device", "cpu", "--weights", "m.csv", "--out", "m.yaml"];
    refuses(&measure, "m.csv would be written over");
}
