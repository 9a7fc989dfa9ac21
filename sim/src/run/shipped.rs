//! Profiles that come with the program, by device and model.

use crate::scenario::ProfileChoice;

macro_rules! profiles {
    ($folder:literal: $($model:literal),*) => {
        &[$(($model, include_str!(concat!("../../../calibrate/profiles/", $folder, "/", $model, ".yaml")))),*]
    };
}

type Profiles = &'static [(&'static str, &'static str)];

const H100_PAPER: Profiles = profiles!("h100-paper": "ouro-1.4b", "ouro-2.6b", "huginn-3.5b");
const H200: Profiles = profiles!("h200": "ouro-1.4b", "ouro-2.6b", "huginn-3.5b", "nanbeige-3b", "recurrent-llama-3.2");

/// A shipped profile's YAML; an error in words if there is none for the model.
///
/// # Errors
/// What was asked for has no figures for the model.
pub fn profile(choice: &ProfileChoice, model: &str) -> Result<&'static str, String> {
    let (whose, gpu, profiles) = match choice {
        ProfileChoice::H200 => ("the calibration on an H200", "h200", H200),
        _ => ("the paper", "h100-80gb", H100_PAPER),
    };
    let found = profiles.iter().find(|(known, _)| *known == model);
    found.map(|(_, yaml)| *yaml).ok_or_else(|| {
        format!("{whose} has no figures for {model}: use `profile: {{ roofline: {{ gpu: {gpu} }} }}`, or calibrate")
    })
}
