//! How much the client itself can do: `cargo bench -p client`.
//!
//! A server in a process of its own sends events at a steady pace over many connections, and does nothing else. One core for
//! the client and one for the server: `taskset` is used where it is there. Prints a table, and exits with 1 if a send was late
//! at 20,000 events/s over 100 connections or over 1,000.

#![expect(clippy::unwrap_used, reason = "a measurement that cannot go on ends where it stands")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use client::{Dialect, Endpoint, Exits, Load, Path, Run, run};
use engine::request::{Arrival, Request, RequestId};
use engine::units::Nanos;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// How long a run sends, and the part of it in which all connections are busy.
const SENDS_S: f64 = 10.0;
const FULL_S: (f64, f64) = (3.0, 9.0);

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "serve") {
        return serve();
    }
    println!(
        "{:>12} {:>12} {:>10} {:>10} {:>14} {:>12} {:>12}",
        "connections", "events/s", "got", "late", "send p99, ms", "max, ms", "lag p99, ms"
    );
    let mut kept_up = true;
    for (connections, events_per_s) in [(100, 5_000), (100, 20_000), (1_000, 20_000), (1_000, 40_000), (1_000, 160_000)]
    {
        let run = measure(connections, events_per_s);
        let times = run.seen.iter().filter_map(|seen| Some(&seen.result.as_ref().ok()?.tokens)).flatten();
        let got =
            times.filter(|at| (FULL_S.0..FULL_S.1).contains(&at.as_secs())).count() as f64 / (FULL_S.1 - FULL_S.0);
        let (health, answered) = (run.health, run.seen.iter().all(|seen| seen.result.is_ok()));
        println!(
            "{connections:>12} {events_per_s:>12} {:>10.0} {:>10} {:>14.3} {:>12.3} {:>12.3}",
            got,
            health.late,
            1e3 * health.send_delay.p99,
            1e3 * health.send_delay.max,
            1e3 * health.lag.p99
        );
        kept_up &= events_per_s > 20_000 || (health.late == 0 && answered);
    }
    if kept_up { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Every connection carries one stream of two seconds after the other; sends are spread evenly.
fn measure(connections: u32, events_per_s: u32) -> Run {
    let gap = Duration::from_secs_f64(f64::from(connections) / f64::from(events_per_s));
    let events = (2.0 / gap.as_secs_f64()) as u32;
    let mut server = on_core(1, &std::env::current_exe().unwrap())
        .args(["serve", &events.to_string(), &gap.as_nanos().to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut address = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let endpoint = Endpoint::new(&format!("http://{}", address.trim()), None).unwrap();
    let dialect = Dialect {
        path: Path::Completions,
        model: "limits".into(),
        vocab: Some(50_000),
        fixes_length: true,
        asks_usage: true,
        seed: 0,
        exits: Exits::Servers,
    };
    // A request takes as long as its events; so many begin per second that all connections are busy.
    let every = gap.mul_f64(f64::from(events) / f64::from(connections));
    let requests = (SENDS_S / every.as_secs_f64()) as u32;
    let arrivals = (0..requests).map(move |id| Arrival {
        request: Request {
            id: RequestId(id),
            arrival: Nanos((every * id).as_nanos() as u64),
            prompt_tokens: 128,
            max_output_tokens: events,
        },
        output_tokens: events,
        cancel_after: None,
    });
    let run = run(&endpoint, &dialect, arrivals, Load::Open, Duration::from_secs(60)).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    run
}

/// A command on one core, where there is `taskset`.
fn on_core(core: u32, program: &std::path::Path) -> Command {
    let there =
        Command::new("taskset").arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success());
    if !there {
        return Command::new(program);
    }
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string()]).arg(program);
    command
}

/// A server whose events cost it next to nothing: one write each.
fn serve() -> ExitCode {
    let numbers: Vec<u64> = std::env::args().skip(2).map(|number| number.parse().unwrap()).collect();
    let (events, gap) = (numbers[0] as u32, Duration::from_nanos(numbers[1]));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap());
        std::io::stdout().flush().unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio::spawn(async move { drop(answers(stream, events, gap).await) });
        }
    })
}

async fn answers(mut stream: TcpStream, events: u32, gap: Duration) -> std::io::Result<()> {
    let mut bytes = vec![0; 1 << 16];
    loop {
        // A request's head and body; the body is JSON and ends with a brace.
        let mut length = 0;
        while length == 0 || bytes[length - 1] != b'}' {
            let read = stream.read(&mut bytes[length..]).await?;
            if read == 0 {
                return Ok(());
            }
            length += read;
        }
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            .await?;
        let begin = Instant::now();
        let event = "data: {\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":1,\"model\":\"limits\",\"choices\":[{\"index\":0,\"text\":\" a\",\"logprobs\":null,\"finish_reason\":null}]}\n\n";
        let event = format!("{:x}\r\n{event}\r\n", event.len());
        for number in 1..=events {
            tokio::time::sleep_until(begin + gap * number).await;
            stream.write_all(event.as_bytes()).await?;
        }
        stream.write_all(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n").await?;
    }
}
