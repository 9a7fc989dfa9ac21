//! Profiles that come with the program, by device and model.

use crate::scenario::ProfileChoice;

/// A shipped profile's YAML; an error in words if there is none for the model.
///
/// # Errors
/// What was asked for has no figures for the model.
pub fn profile(choice: &ProfileChoice, model: &str) -> Result<&'static str, String> {
    let (whose, gpu) = match choice {
        ProfileChoice::H200 => ("the calibration on an H200", "h200"),
        _ => ("the paper", "h100-80gb"),
    };
    match (choice, model) {
        (ProfileChoice::H100Paper, "ouro-1.4b") => {
            Ok(include_str!("../../../calibrate/profiles/h100-paper/ouro-1.4b.yaml"))
        }
        (ProfileChoice::H100Paper, "ouro-2.6b") => {
            Ok(include_str!("../../../calibrate/profiles/h100-paper/ouro-2.6b.yaml"))
        }
        (ProfileChoice::H100Paper, "huginn-3.5b") => {
            Ok(include_str!("../../../calibrate/profiles/h100-paper/huginn-3.5b.yaml"))
        }
        (ProfileChoice::H200, "ouro-1.4b") => Ok(include_str!("../../../calibrate/profiles/h200/ouro-1.4b.yaml")),
        (ProfileChoice::H200, "ouro-2.6b") => Ok(include_str!("../../../calibrate/profiles/h200/ouro-2.6b.yaml")),
        (ProfileChoice::H200, "huginn-3.5b") => Ok(include_str!("../../../calibrate/profiles/h200/huginn-3.5b.yaml")),
        _ => Err(format!(
            "{whose} has no figures for {model}: use `profile: {{ roofline: {{ gpu: {gpu} }} }}`, or calibrate"
        )),
    }
}
