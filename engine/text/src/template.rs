//! A chat template, run as Hugging Face's code runs it.

use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind, context};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::Serialize;

use super::error::TextError;
use super::tokenizer::Tokenizer;

/// Work that one rendering may do: an instruction costs 1, and so do 64 bytes of text that it makes. A message takes
/// some tens of them, so this suits tens of thousands of messages, in a fraction of a second and at most 128 MB.
const FUEL: u64 = 2_000_000;

/// Bytes that a template may write. A context of a million tokens is about 4 MB of text.
const OUTPUT_BYTES_MAX: usize = 8 << 20;

const NAME: &str = "chat_template";

/// A compiled template.
#[derive(Debug)]
pub(super) struct Template {
    environment: Environment<'static>,
}

/// One message as the template sees it.
#[derive(Debug)]
pub(super) struct TemplateMessage {
    pub(super) role: String,
    pub(super) content: String,
}

impl Template {
    /// Compiles a template; a mistake in its syntax is an error with its line.
    pub(super) fn compile(source: &str, tokenizer: &Tokenizer) -> Result<Self, TextError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(explain)?;
        environment.set_syntax(syntax);
        environment.set_fuel(Some(FUEL));
        // Otherwise it is on in debug builds, and an error would carry the user's messages.
        environment.set_debug(false);
        environment.set_unknown_method_callback(unknown_method_callback);
        environment.add_filter("tojson", to_json);
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        for (name, token) in
            [("bos_token", tokenizer.bos()), ("eos_token", tokenizer.eos()), ("pad_token", tokenizer.pad())]
        {
            // A token that is not named stays undefined, which prints nothing.
            if let Some(token) = token {
                environment.add_global(name, token.text.clone());
            }
        }
        // Templates ask whether there are tools or documents; here there are none.
        environment.add_global("tools", ());
        environment.add_global("documents", ());
        environment.add_template_owned(NAME, source.to_owned()).map_err(explain)?;
        Ok(Self { environment })
    }

    /// The text of a conversation.
    pub(super) fn render(
        &self,
        messages: Vec<TemplateMessage>,
        add_generation_prompt: bool,
    ) -> Result<String, TextError> {
        let messages: Vec<Value> = messages
            .into_iter()
            .map(|TemplateMessage { role, content }| context! { role => role, content => content })
            .collect();
        let mut output = Bounded(Vec::new());
        let template = self.environment.get_template(NAME).map_err(explain)?;
        template.render_captured_to(context! { messages, add_generation_prompt }, &mut output).map_err(explain)?;
        String::from_utf8(output.0).map_err(|source| TextError::Template { line: 0, problem: source.to_string() })
    }
}

/// Output that refuses to grow without end.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > OUTPUT_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// JSON as Python writes it, with a space behind commas and colons, and without the escapes that HTML needs.
fn to_json(value: Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let ensure_ascii: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    if ensure_ascii == Some(true) {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: only ensure_ascii=false can be done"));
    }
    let mut bytes = Vec::new();
    let written = match indent {
        None => value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, Spaced)),
        Some(width) => {
            let indent = " ".repeat(width.min(16));
            let formatter = serde_json::ser::PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, formatter))
        }
    };
    written.map_err(|source| Error::new(ErrorKind::BadSerialization, source.to_string()))?;
    String::from_utf8(bytes).map_err(|source| Error::new(ErrorKind::BadSerialization, source.to_string()))
}

struct Spaced;

impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

/// An error of the template's language, in our words where the limits are ours.
fn explain(error: Error) -> TextError {
    let problem = match error.kind() {
        ErrorKind::OutOfFuel => format!("takes more than {FUEL} steps: shorten the conversation, or the template"),
        ErrorKind::WriteFailure => {
            format!("writes more than {OUTPUT_BYTES_MAX} bytes: shorten the conversation, or the template")
        }
        kind => error.detail().map_or_else(|| kind.to_string(), str::to_owned),
    };
    TextError::Template { line: error.line().unwrap_or_default(), problem }
}
