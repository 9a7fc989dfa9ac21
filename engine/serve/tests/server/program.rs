//! The program itself: what it prints, and with what it exits.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use engine::architecture::Architecture;
use engine::profile::{DeviceSpec, Profile};
use serde_json::{Value, json};
use serve::http::{Guard, Limits};
use tempfile::TempDir;

use crate::client::{Answer, Client, request};
use crate::golden::expected;
use crate::server::{SCENARIO, Server, folder};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_serve"));
    command.args(arguments).env_remove("LOOPBATCH_API_KEY").env_remove("NO_COLOR");
    command
}

/// Settings with little KV: a server takes as much memory as it could use.
fn scenario() -> (TempDir, String) {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("scenario.yaml");
    std::fs::write(&file, SCENARIO).unwrap();
    let file = file.to_str().unwrap().to_owned();
    (dir, file)
}

fn output(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// What it says while it exits with 2.
fn refused(arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = output(arguments);
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!((status.code(), stdout.len()), (Some(2), 0), "{arguments:?}: {said}");
    said
}

/// What `generate` prints, and what it says beside.
fn generated(model: &Path, arguments: &[&str]) -> (String, String) {
    let Output { status, stdout, stderr } =
        output(&[&["generate", "--model", model.to_str().unwrap(), "--threads", "1"], arguments].concat());
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(status.success(), "{arguments:?}: {stderr}");
    (stdout, stderr)
}

/// A copy of the model's folder.
fn copied() -> TempDir {
    let dir = TempDir::new().unwrap();
    for file in
        ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    {
        std::fs::copy(folder().join(file), dir.path().join(file)).unwrap();
    }
    dir
}

#[test]
fn generate_prints_what_the_models_own_code_says() {
    let run = &expected()["text"]["greedy"]["runs"][0];
    let text = run["text_without_special"].as_str().unwrap();
    let ask = ["--chat", "--prompt", "What is the time?", "--full-depth", "--max-tokens", "40"];
    let (stdout, stderr) = generated(&folder(), &ask);
    assert_eq!(stdout, format!("{text}\n"));
    assert!(stderr.starts_with("12 tokens, ") && stderr.ends_with("mean exit depth 4.00 of 4\n"), "{stderr}");
    let (stdout, stderr) = generated(&folder(), &[&ask[..], &["--json"]].concat());
    let object: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (&object["text"], &object["tokens"], &object["finish_reason"]),
        (&json!(text), &run["tokens"], &json!("stop"))
    );
    assert_eq!((object["exit_depths"].as_array().unwrap().len(), stderr.as_str()), (12, ""));
}

#[test]
fn generate_shows_depths_and_draws_by_seed() {
    let ask =
        ["--prompt", "Hello world", "--max-tokens", "30", "--exit-threshold", "0.35", "--temperature", "0.8", "--seed"];
    let json = |seed: &str| -> Value {
        serde_json::from_str(&generated(&folder(), &[&ask[..], &[seed, "--json"]].concat()).0).unwrap()
    };
    let (one, two) = (json("1"), json("2"));
    assert_ne!(one["text"], two["text"]);
    let depths: Vec<u64> = one["exit_depths"].as_array().unwrap().iter().map(|depth| depth.as_u64().unwrap()).collect();
    assert!(depths.iter().any(|&depth| depth < 4) && depths.iter().all(|depth| (1..=4).contains(depth)), "{depths:?}");
    let (shown, stderr) = generated(&folder(), &[&ask[..], &["1", "--show-depths"]].concat());
    assert!(stderr.starts_with("tokens by exit depth: "), "{stderr}");
    assert!(shown.starts_with("{4|") && shown.ends_with("}\n"), "the first token comes at full depth: {shown}");
    let unmarked = |shown: &str| {
        let parts = shown.trim_end().trim_end_matches('}').split("}{").map(|part| part.trim_start_matches('{'));
        parts.map(|part| part.split_once('|').unwrap().1).collect::<String>()
    };
    assert_eq!(unmarked(&shown), one["text"].as_str().unwrap());
}

#[test]
fn a_random_folder_is_one_that_generates_and_serves() {
    let dir = TempDir::new().unwrap();
    for name in ["tiny-ouro", "tiny-huginn"] {
        let to = dir.path().join(name);
        let written = output(&["write-random", "--model", name, to.to_str().unwrap()]);
        assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
        let (stdout, _) = generated(&to, &["--prompt", "Hé", "--max-tokens", "5", "--json"]);
        let tokens = serde_json::from_str::<Value>(&stdout).unwrap()["tokens"].as_array().unwrap().len();
        assert!((1..=5).contains(&tokens));
        let server = Server::serving(&to, SCENARIO, Limits::default(), Guard::default());
        let body = json!({ "messages": [{ "role": "user", "content": "Hé" }], "max_tokens": 3, "ignore_eos": true });
        let answer = server.client.post("/v1/chat/completions", &body).json();
        // Bytes are tokens: `user`, a line break and the text between two special ones, and `assistant` behind another.
        assert_eq!(answer["usage"]["prompt_tokens"], (1 + 5 + 3 + 1 + 1) + (1 + 10));
        assert_eq!(answer["usage"]["completion_tokens"], 3);
        let again = refused(&["write-random", "--model", name, to.to_str().unwrap()]);
        assert!(again.contains("holds files already"), "{again}");
    }
    let error = refused(&["write-random", "--model", "other", "somewhere"]);
    assert!(error.contains("there is no shape `other`; there are ouro-1.4b"), "{error}");
}

#[test]
fn what_cannot_be_started_exits_with_2_and_says_why() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let model = folder();
    let model = model.to_str().unwrap();
    let (_dir, small) = scenario();
    for (arguments, part) in [
        (&["--model", model, "--port", &port][..], "another program listens there"),
        (&["--model", model, "--host", "0.0.0.0", "--port", "0"], "set LOOPBATCH_API_KEY"),
        (&["--model", model, "--host", "nowhere"], "--host must be an IP address"),
        (&["--model", "/nowhere", "--port", "0"], "is not a folder"),
        (&["--model", model, "--port", "0", "--exit-threshold", "NaN"], "must be a number"),
        (
            &["--model", model, "--port", "0", "--scenario", &small, "--min-depth", "0"],
            "--min-depth must be at least 1",
        ),
        (&["--model", model, "--port", "0", "--scenario", &small, "--profile", "/nowhere.yaml"], "/nowhere.yaml"),
        (&["--model", model, "--port", "0", "--scenario", "/nowhere.yaml"], "/nowhere.yaml"),
        (&["generate", "--model", model, "--prompt", ""], "it has no token"),
        (&["generate", "--model", model, "--prompt", "a", "--temperature", "NaN"], "temperature"),
        (&["generate", "--model", model, "--prompt", "a", "--max-tokens", "0"], "--max-tokens"),
    ] {
        let said = refused(arguments);
        assert!(said.contains(part), "{arguments:?}: {said}");
    }
}

#[test]
fn a_broken_folder_exits_with_2_and_names_its_file() {
    /// Breaks a folder, and how the message must go.
    type Case = (&'static str, fn(&Path), &'static str);
    let cases: [Case; 4] = [
        (
            "model.safetensors",
            |file| {
                let bytes = std::fs::read(file).unwrap();
                std::fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
            },
            "model.safetensors",
        ),
        ("model.safetensors", looped, "model.safetensors"),
        ("tokenizer.json", looped, "tokenizer.json"),
        (
            "tokenizer.json",
            |file| {
                let mut tokenizer: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
                let mut token = tokenizer["added_tokens"][0].clone();
                (token["id"], token["content"]) = (json!(400), json!("<one too many>"));
                tokenizer["added_tokens"].as_array_mut().unwrap().push(token);
                std::fs::write(file, tokenizer.to_string()).unwrap();
            },
            "has token ids up to 400, and the model's vocabulary has 400 ids",
        ),
    ];
    for (file, damage, part) in cases {
        let dir = copied();
        damage(&dir.path().join(file));
        let said = refused(&["--model", dir.path().to_str().unwrap(), "--port", "0"]);
        assert!(said.contains(part), "{file}: {said}");
    }
}

/// A link to itself.
fn looped(file: &Path) {
    std::fs::remove_file(file).unwrap();
    std::os::unix::fs::symlink(file, file).unwrap();
}

#[test]
fn a_profile_tells_what_the_simulator_expects_and_must_be_the_models_own() {
    let dir = TempDir::new().unwrap();
    let model = dir.path().join("model");
    let model = model.to_str().unwrap();
    assert!(output(&["write-random", "--model", "tiny-ouro", model]).status.success());
    let said = refused(&["--model", model, "--port", "0", "--profile", "h200"]);
    assert!(said.contains("--profile h200"), "{said}");

    let profile =
        Profile::roofline(&DeviceSpec::datasheet("h200").unwrap(), &Architecture::builtin("tiny-ouro").unwrap());
    let file = dir.path().join("profile.yaml");
    std::fs::write(&file, serde_yaml::to_string(&profile).unwrap()).unwrap();
    let arguments = ["--model", model, "--port", "0", "--profile", file.to_str().unwrap()];
    let mut program = command(&arguments).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(program.stderr.take().unwrap()).lines().map(Result::unwrap);
    let said = lines.take_while(|line| !line.starts_with("serving ")).collect::<Vec<_>>().join("\n");
    program.kill().unwrap();
    program.wait().unwrap();
    for part in
        ["with 512 tokens in and 128 out", "tokens/s with 64 requests at once", "requests/s (for 99% of requests"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_signal_lets_what_runs_finish_and_the_program_exit_with_0() {
    let model = folder();
    let (_dir, small) = scenario();
    let arguments = ["--model", model.to_str().unwrap(), "--port", "0", "--scenario", &small];
    let mut program = command(&arguments).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(program.stderr.take().unwrap()).lines();
    let line = said.next().unwrap().unwrap();
    let address = line.strip_prefix("serving tokenizer at http://").unwrap().strip_suffix("/v1").unwrap();
    let client = Client(address.parse().unwrap());
    let body = json!({ "prompt": "a", "max_tokens": 200, "ignore_eos": true, "stream": true });
    let mut stream = client.connect();
    stream.write_all(&request("/v1/completions", body.to_string().as_bytes())).unwrap();
    let mut bytes = vec![0; 12];
    stream.read_exact(&mut bytes).unwrap();
    let killed = Command::new("kill").args(["-TERM", &program.id().to_string()]).status().unwrap();
    assert!(killed.success());
    stream.read_to_end(&mut bytes).unwrap();
    assert_eq!(Answer::of(&bytes).events().len(), 200);
    assert_eq!(program.wait().unwrap().code(), Some(0));
}
