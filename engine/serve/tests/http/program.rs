//! The program: what it says at start, how it ends, and `generate`.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use engine::architecture::Architecture;
use engine::profile::{Device, Profile};
use serde_json::{Value, json};

use crate::client::{ask, begin, post, until};
use crate::server::fixtures;

fn serve() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_serve"));
    command.env_remove("LOOPBATCH_API_KEY").env_remove("NO_COLOR").stdin(Stdio::null());
    command
}

fn output(arguments: &[&str]) -> Output {
    serve().args(arguments).output().unwrap()
}

/// A folder of random weights; gone with the guard.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let guard = tempfile::tempdir().unwrap();
    let dir = guard.path().join("tiny");
    let out = output(&["write-random", "--model", "tiny-ouro", dir.to_str().unwrap()]);
    assert!(out.status.success(), "{out:?}");
    (guard, dir)
}

/// A program that serves, its address, and what it said before; ended with the value.
struct Program(Child, SocketAddr, Vec<String>);

impl Program {
    fn start(model: &Path) -> Self {
        Self::start_with(model, &[])
    }

    fn start_with(model: &Path, more: &[&str]) -> Self {
        let mut command = serve();
        command.args(["--model", model.to_str().unwrap(), "--port", "0"]).args(more);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.as_mut().unwrap()).lines();
        let mut said = Vec::new();
        let address = loop {
            let line = lines.next().unwrap_or_else(|| panic!("it does not serve: {said:?}")).unwrap();
            match line.split_once("http://") {
                Some((_, address)) => break address.trim_end_matches("/v1").parse().unwrap(),
                None => said.push(line),
            }
        };
        Self(child, address, said)
    }

    fn terminate(&self) {
        assert!(Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn fails_with(arguments: &[&str], code: i32, says: &str) {
    let out = output(arguments);
    let error = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{arguments:?}: {error}");
    assert!(error.contains(says), "{arguments:?}: {error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_serves_a_folder_drains_on_a_signal_and_exits_with_0() {
    let (_guard, dir) = folder();
    let mut program = Program::start(&dir);
    let body = json!({ "model": "tiny", "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 300,
                       "ignore_eos": true, "stream": true });
    let mut stream = begin(program.1, &post("/v1/chat/completions", &body), "data: ").await;
    program.terminate();
    until(&mut stream, "[DONE]").await;
    assert_eq!(program.0.wait().unwrap().code(), Some(0));
    let mut rest = String::new();
    program.0.stderr.take().unwrap().read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("panicked"), "{rest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_port_ends_the_program_with_2_and_leaves_the_other_alone() {
    let (_guard, dir) = folder();
    let program = Program::start(&dir);
    let port = program.1.port().to_string();
    fails_with(&["--model", dir.to_str().unwrap(), "--port", &port], 2, "another program listens there");
    let body = json!({ "prompt": "a", "max_tokens": 1 });
    assert_eq!(ask(program.1, "/v1/completions", body).await.status, 200);
}

#[test]
fn beyond_loopback_a_key_is_needed_before_anything_is_loaded() {
    fails_with(&["--model", "nowhere", "--host", "0.0.0.0", "--port", "0"], 2, "set LOOPBATCH_API_KEY");
    fails_with(&["--model", "nowhere", "--host", "somewhere"], 2, "must be an IP address");
    fails_with(&["--model", "nowhere", "--port", "0"], 2, "nowhere is not a folder");
}

#[test]
fn a_folder_that_cannot_be_served_is_named_for_what_it_is() {
    let (_guard, dir) = folder();
    let copy = |name: &str| {
        let to = dir.parent().unwrap().join(name);
        std::fs::create_dir(&to).unwrap();
        for file in std::fs::read_dir(&dir).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
        to
    };
    let check = |dir: &Path, says: &str| fails_with(&["--model", dir.to_str().unwrap(), "--port", "0"], 2, says);

    let truncated = copy("truncated");
    let weights = truncated.join("model.safetensors");
    let length = std::fs::metadata(&weights).unwrap().len();
    std::fs::File::options().write(true).open(&weights).unwrap().set_len(length / 2).unwrap();
    check(&truncated, "model.safetensors");

    let looping = copy("looping");
    std::fs::remove_file(looping.join("model.safetensors")).unwrap();
    std::os::unix::fs::symlink("model.safetensors", looping.join("model.safetensors")).unwrap();
    check(&looping, "model.safetensors");

    let other = copy("other");
    let config = std::fs::read_to_string(other.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["vocab_size"] = json!(100);
    std::fs::write(other.join("config.json"), config.to_string()).unwrap();
    check(&other, "the model's vocabulary has 100 ids");

    let silent = copy("silent");
    std::fs::remove_file(silent.join("tokenizer.json")).unwrap();
    check(&silent, "tokenizer.json");
}

#[test]
fn generate_prints_the_text_and_its_depths() {
    let (_guard, dir) = folder();
    let generate = |more: &[&str]| {
        let model = dir.to_str().unwrap();
        let out = output(&[&["generate", "--model", model, "--prompt", "hello", "--max-tokens", "24"], more].concat());
        assert!(out.status.success(), "{out:?}");
        (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
    };
    let (text, statistics) = generate(&["--seed", "3"]);
    assert!(statistics.contains("tokens/s") && statistics.contains("mean exit depth 4.00 of 4"), "{statistics}");
    let (json, _) = generate(&["--seed", "3", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(format!("{}\n", json["text"].as_str().unwrap()), text, "the same seed, the same text");
    assert_eq!(json["tokens"].as_array().unwrap().len(), json["exit_depths"].as_array().unwrap().len());
    let (marked, legend) = generate(&["--show-depths", "--exit-threshold", "0.3", "--temperature", "0"]);
    assert!(legend.starts_with("tokens by exit depth:"), "{legend}");
    assert!(marked.starts_with('{') && marked.ends_with("}\n") && marked.contains("}{"), "{marked}");
    let (early, _) = generate(&["--exit-threshold", "0.3", "--json"]);
    let early: Value = serde_json::from_str(&early).unwrap();
    assert_eq!(early["exit_depths"][0], 4, "prompts run all loops");
    assert!(early["mean_exit_depth"].as_f64().unwrap() < 4.0);
    let (full, _) = generate(&["--full-depth", "--json", "--chat"]);
    let full: Value = serde_json::from_str(&full).unwrap();
    assert_eq!(full["mean_exit_depth"], 4.0);
}

#[test]
fn generate_refuses_what_cannot_be() {
    let (_guard, dir) = folder();
    let model = dir.to_str().unwrap();
    let base = ["generate", "--model", model, "--prompt", "a"];
    for (more, says) in [
        (["--temperature", "nan"], "temperature"),
        (["--temperature", "-1"], "temperature"),
        (["--top-p", "0"], "top_p"),
        (["--max-tokens", "0"], "max-tokens"),
        (["--exit-threshold", "nan"], "threshold"),
    ] {
        fails_with(&[&base[..], &more[..]].concat(), 2, says);
    }
    fails_with(&["write-random", "--model", "tiny-ouro", model], 2, "new or empty");
    fails_with(&["write-random", "--model", "huge", "x"], 2, "there is no shape `huge`");
    fails_with(&["generate", "--model", fixtures().to_str().unwrap(), "--prompt", "a"], 2, "config.json");
}

#[test]
fn a_profile_tells_what_the_simulator_expects() {
    let (guard, dir) = folder();
    let profile = Profile::roofline(&Device::datasheet("h200").unwrap(), &Architecture::builtin("tiny-ouro").unwrap());
    let file = guard.path().join("profile.yaml");
    std::fs::write(&file, serde_yaml::to_string(&profile).unwrap()).unwrap();
    let program = Program::start_with(&dir, &["--profile", file.to_str().unwrap()]);
    let said = program.2.join("\n");
    for part in
        ["with 512 tokens in and 128 out", "tokens/s with 64 requests at once", "requests/s (for 99% of requests"]
    {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_profile_of_another_model_is_refused() {
    let (_guard, dir) = folder();
    fails_with(&["--model", dir.to_str().unwrap(), "--port", "0", "--profile", "h200"], 2, "--profile h200");
}
