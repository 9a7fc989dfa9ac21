//! Notes the git revision, which goes into every report, and for `calibrate` into every profile.

use std::process::Command;

fn main() {
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    let revision = output
        .ok()
        .filter(|output| output.status.success())
        .map_or_else(|| "unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    println!("cargo::rustc-env=GIT_REVISION={revision}");
    // Changes with every commit; absent in a source archive, where there is nothing to watch.
    println!("cargo::rerun-if-changed=../.git/logs/HEAD");
}
