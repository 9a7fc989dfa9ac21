//! `serve`: the server itself.

use std::io;
use std::net::IpAddr;

use clap::Args;
use serve::expectation;
use serve::http::{Guard, Limits, Server};
use serve::setup::{Ready, ServedRun};
use tokio::signal::unix::{SignalKind, signal};

use super::{Failure, runtime};

/// Where the API key comes from; an argument would be seen by everyone on the machine.
const KEY: &str = "LOOPBATCH_API_KEY";

#[derive(Args)]
pub(super) struct ServerArguments {
    #[command(flatten)]
    run: ServedRun,
    /// The address to listen at. Beyond loopback the environment must have LOOPBATCH_API_KEY.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// The port to listen at; 0 takes any.
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Another name by which clients may call this server, as a proxy would.
    #[arg(long = "allowed-host", value_name = "NAME")]
    allowed_hosts: Vec<String>,
    /// The model's name for clients; the folder's by default.
    #[arg(long, value_name = "NAME")]
    served_model_name: Option<String>,
    /// Prints what the simulator expects of this server: `h200`, `h100-paper`, or a file that `calibrate` wrote.
    #[arg(long, value_name = "FILE|NAME")]
    profile: Option<String>,
    #[command(flatten)]
    limits: Limits,
}

pub(super) fn serve(arguments: &ServerArguments) -> Result<(), Failure> {
    let address = address(&arguments.host)?;
    let key = std::env::var(KEY).ok().filter(|key| !key.is_empty());
    if !address.is_loopback() && key.is_none() {
        let message = format!("--host {}: whoever reaches this address could use the model: set {KEY}", arguments.host);
        return Err(Failure::input(message));
    }
    let hosts = arguments.allowed_hosts.iter().chain([&arguments.host]).cloned().collect();
    let guard = Guard { hosts, key };
    runtime()?.block_on(async {
        // The port first: loading weights for a server that cannot listen would be for nothing.
        let listener = Server::listen((address, arguments.port)).map_err(|error| taken(&error, arguments))?;
        let max_queue = arguments.limits.max_queue;
        let name = arguments.served_model_name.as_deref();
        let ready = arguments.run.start(name, max_queue).map_err(Failure::input)?;
        if let Some(profile) = &arguments.profile {
            eprint!("{}", expectation::of(&ready, profile).map_err(Failure::input)?);
        }
        let Ready { engine, model, .. } = ready;
        let name = model.name.clone();
        let server = Server::new(listener, engine, model, arguments.limits.clone(), guard).map_err(Failure::run)?;
        let at = server.address().map_err(Failure::run)?;
        let stop = stop().map_err(Failure::run)?;
        eprintln!("serving {name} at http://{at}/v1");
        server.run(stop).await.map_err(Failure::run)
    })
}

fn address(host: &str) -> Result<IpAddr, Failure> {
    if host.eq_ignore_ascii_case("localhost") {
        return Ok(IpAddr::from([127, 0, 0, 1]));
    }
    let address = host.trim_start_matches('[').trim_end_matches(']').parse();
    address.map_err(|_| Failure::input(format!("--host must be an IP address such as 127.0.0.1 or ::1, got `{host}`")))
}

fn taken(error: &io::Error, arguments: &ServerArguments) -> Failure {
    let ServerArguments { host, port, .. } = arguments;
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            Failure::input(format!("--port {port}: another program listens there: take another port, or 0 for any"))
        }
        _ => Failure::input(format!("--host {host} --port {port}: {error}")),
    }
}

/// Waits for the first SIGTERM or SIGINT; another one ends the program at once.
fn stop() -> io::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} };
        eprintln!("finishing what runs; a second signal ends it at once");
        tokio::spawn(async move {
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} };
            std::process::exit(1);
        });
    })
}
