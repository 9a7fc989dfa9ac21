//! What a folder says of its tokenizer beside `tokenizer.json`.

use std::path::Path;

use serde::Deserialize;
use tokenizers::AddedToken;

use super::error::TextError;

/// The part of `tokenizer_config.json` that is used; a file that is not there says nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TokenizerConfig {
    pub(super) bos_token: Option<TokenSpec>,
    pub(super) eos_token: Option<TokenSpec>,
    pub(super) pad_token: Option<TokenSpec>,
    unk_token: Option<TokenSpec>,
    sep_token: Option<TokenSpec>,
    cls_token: Option<TokenSpec>,
    mask_token: Option<TokenSpec>,
    additional_special_tokens: Option<Vec<TokenSpec>>,
    pub(super) add_bos_token: Option<bool>,
    chat_template: Option<TemplateSpec>,
}

/// A special token: its text, or its text and how it matches.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a special token must be a text, or an object with a `content`")]
pub(super) enum TokenSpec {
    Text(String),
    Token(TokenFields),
}

/// A special token as an object; what is not said is as for a plain text.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct TokenFields {
    content: String,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    normalized: bool,
}

/// One chat template, or several that have names.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "`chat_template` must be a text, or a list of objects with `name` and `template`")]
enum TemplateSpec {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Debug, Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

impl TokenizerConfig {
    /// Reads `tokenizer_config.json`.
    pub(super) fn read(folder: &Path) -> Result<Self, TextError> {
        let path = folder.join("tokenizer_config.json");
        let Some(text) = read_if_there(&path)? else { return Ok(Self::default()) };
        serde_json::from_str(&text).map_err(|source| TextError::File {
            path,
            problem: format!("must be a tokenizer's configuration as Hugging Face writes it: {source}"),
        })
    }

    /// Every token that the configuration calls special, in its order.
    pub(super) fn special_tokens(&self) -> impl Iterator<Item = &TokenSpec> {
        let one = [
            &self.bos_token,
            &self.eos_token,
            &self.unk_token,
            &self.sep_token,
            &self.pad_token,
            &self.cls_token,
            &self.mask_token,
        ];
        one.into_iter().flatten().chain(self.additional_special_tokens.iter().flatten())
    }

    /// The chat template: `chat_template.jinja` comes before `tokenizer_config.json`, as in Hugging Face's code; of
    /// several it is the one named `default`.
    pub(super) fn chat_template(&self, folder: &Path) -> Result<Option<String>, TextError> {
        if let Some(file) = read_if_there(&folder.join("chat_template.jinja"))? {
            return Ok(Some(file));
        }
        Ok(match &self.chat_template {
            None => None,
            Some(TemplateSpec::One(template)) => Some(template.clone()),
            Some(TemplateSpec::Named(list)) => {
                list.iter().find(|entry| entry.name == "default").map(|entry| entry.template.clone())
            }
        })
    }
}

impl TokenSpec {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Token(fields) => &fields.content,
        }
    }

    pub(super) fn to_added_token(&self) -> AddedToken {
        match self {
            Self::Text(text) => AddedToken::from(text.clone(), true),
            Self::Token(fields) => AddedToken::from(fields.content.clone(), true)
                .lstrip(fields.lstrip)
                .rstrip(fields.rstrip)
                .single_word(fields.single_word)
                .normalized(fields.normalized),
        }
    }
}

/// The file's text, or nothing where there is no such file.
fn read_if_there(path: &Path) -> Result<Option<String>, TextError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TextError::Io { path: path.into(), source }),
    }
}
