//! `serve generate`: one prompt, answered by the same engine as the server's.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::Args;
use engine::submission::{Ends, ExitRule, Sampling};
use serde_json::json;
use serve::call::{Asked, Call};
use serve::model::ServedModel;
use serve::router::{Last, What};
use serve::setup::ServedRun;
use serve::text::{Message, TextStream};

use super::depths::Depths;
use super::{Failure, runtime};

#[derive(Args)]
pub(super) struct GenerateArguments {
    #[command(flatten)]
    run: ServedRun,
    /// What is to be continued.
    #[arg(long)]
    prompt: String,
    /// The prompt is a user's message, written as the model's chat template has it.
    #[arg(long)]
    chat: bool,
    /// Prints one JSON object with the text, the tokens, their depths and the statistics.
    #[arg(long)]
    json: bool,
    /// Shows at which depth each token left the loop, by colour, or by marks where there is none.
    #[arg(long, conflicts_with = "json")]
    show_depths: bool,
    /// Every token runs all loops.
    #[arg(long, conflicts_with_all = ["exit_threshold", "min_depth"])]
    full_depth: bool,
    /// Output tokens at most.
    #[arg(long, value_name = "TOKENS", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: u32,
    /// 0 takes the most probable token; the folder's, or 1, by default.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    temperature: Option<f32>,
    /// Only the k most probable tokens; 0 takes all.
    #[arg(long, value_name = "K")]
    top_k: Option<u32>,
    /// Only the most probable tokens that together reach this probability.
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f32>,
    /// The same seed, the same draws.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

pub(super) fn generate(arguments: &GenerateArguments) -> Result<(), Failure> {
    let ready = arguments.run.start(None, 1).map_err(Failure::input)?;
    let asked = asked(arguments, &ready.model).map_err(Failure::input)?;
    let full_depth = ready.architecture.r_max.0;
    let client = ready.engine.client.clone();
    let made = runtime()?.block_on(async {
        let call = client.call(vec![asked]).map_err(Failure::run)?;
        print(arguments, &ready.model, full_depth, call).await
    });
    drop((client, ready.engine.client));
    // Behind the last client the engine ends.
    let _ = ready.engine.thread.join();
    let made = made?;
    if arguments.json { made.print_json() } else { made.print_statistics(full_depth) }
}

fn asked(arguments: &GenerateArguments, model: &ServedModel) -> Result<Asked, String> {
    let prompt = if arguments.chat {
        let message = Message { role: "user".into(), content: arguments.prompt.clone() };
        model.chat.render(&[message], true)
    } else {
        model.tokenizer.encode(&arguments.prompt, true)
    };
    let prompt = prompt.map_err(|error| error.to_string())?;
    let context = model.context_tokens;
    let room = u64::from(context).saturating_sub(prompt.len() as u64);
    if prompt.is_empty() {
        return Err("--prompt: it has no token: say something".into());
    }
    if room == 0 {
        return Err(format!(
            "--prompt: it has {} tokens, and the context holds {context} with the answer",
            prompt.len()
        ));
    }
    let sampling = Sampling {
        temperature: arguments.temperature.unwrap_or(model.sampling.temperature),
        top_k: arguments.top_k.unwrap_or(model.sampling.top_k),
        top_p: arguments.top_p.unwrap_or(model.sampling.top_p),
        seed: arguments.seed,
    };
    sampling.check()?;
    Ok(Asked {
        prompt: prompt.into(),
        max_tokens: u64::from(arguments.max_tokens).min(room) as u32,
        sampling,
        exit: (arguments.full_depth || model.full_depth_only).then_some(ExitRule::FullDepth),
        ends: Some(Ends { tokens: model.end_tokens.clone(), min_tokens: 0 }),
        logprobs: None,
        cache_salt: None,
    })
}

/// What was made.
struct Made {
    text: String,
    tokens: Vec<u32>,
    depths: Vec<u8>,
    finish_reason: &'static str,
    first: Duration,
    all: Duration,
}

/// Prints the answer while it is made, unless it is to be JSON.
#[expect(clippy::disallowed_methods, reason = "a user is told how long it took")]
async fn print(
    arguments: &GenerateArguments,
    model: &ServedModel,
    full_depth: u8,
    mut call: Call,
) -> Result<Made, Failure> {
    let begun = Instant::now();
    let mut stream = TextStream::new(model.tokenizer.clone(), true);
    let mut shown = arguments.show_depths.then(|| Depths::new(full_depth, has_colours()));
    let mut made = Made {
        text: String::new(),
        tokens: Vec::new(),
        depths: Vec::new(),
        finish_reason: "length",
        first: Duration::ZERO,
        all: Duration::ZERO,
    };
    if let Some(shown) = &shown {
        eprintln!("{}", shown.legend());
    }
    while let Some(event) = call.next().await {
        let token = match event.what {
            What::Token(token) => token,
            What::Accepted | What::Prompt(_) => continue,
            What::Refused(reason) => return Err(Failure::input(reason)),
            What::Failed(reason) => return Err(Failure::run(reason)),
        };
        if made.tokens.is_empty() {
            made.first = begun.elapsed();
        }
        made.tokens.push(token.id);
        made.depths.push(token.depth.0);
        let mut text = String::new();
        if token.last == Some(Last::Stop) {
            made.finish_reason = "stop";
        } else {
            text += &stream.push(token.id).map_err(Failure::run)?;
        }
        if token.last.is_some() {
            text += &stream.finish().map_err(Failure::run)?;
        }
        if !arguments.json {
            let text = shown.as_mut().map_or_else(|| text.clone(), |shown| shown.token(&text, token.depth));
            out(&text)?;
        }
        made.text += &text;
    }
    made.all = begun.elapsed();
    if !arguments.json {
        let end = shown.as_mut().map_or_else(String::new, Depths::end);
        out(&(end + "\n"))?;
    }
    Ok(made)
}

/// Colours suit a terminal whose user has not asked for none.
fn has_colours() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn out(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|error| Failure::run(format!("stdout: {error}")))
}

impl Made {
    fn mean_depth(&self) -> f64 {
        self.depths.iter().copied().map(f64::from).sum::<f64>() / self.depths.len().max(1) as f64
    }

    /// Tokens per second behind the first one, if there are several.
    fn tokens_per_s(&self) -> Option<f64> {
        let seconds = (self.all - self.first).as_secs_f64();
        (self.tokens.len() > 1 && seconds > 0.0).then(|| (self.tokens.len() - 1) as f64 / seconds)
    }

    fn print_json(&self) -> Result<(), Failure> {
        let object = json!({
            "text": self.text,
            "tokens": self.tokens,
            "exit_depths": self.depths,
            "mean_exit_depth": self.mean_depth(),
            "finish_reason": self.finish_reason,
            "ttft_s": self.first.as_secs_f64(),
            "tokens_per_s": self.tokens_per_s(),
        });
        out(&format!("{object}\n"))
    }

    fn print_statistics(&self, full_depth: u8) -> Result<(), Failure> {
        let rate = self.tokens_per_s().map_or_else(String::new, |rate| format!(", {rate:.1} tokens/s"));
        eprintln!(
            "{} tokens{rate}, first after {:.1} ms, mean exit depth {:.2} of {full_depth}",
            self.tokens.len(),
            1e3 * self.first.as_secs_f64(),
            self.mean_depth()
        );
        Ok(())
    }
}
