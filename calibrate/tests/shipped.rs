//! The shipped profiles parse, are sound, and say what the paper says.

use engine::profile::{Profile, StageCost};

const OURO: &str = include_str!("../profiles/h100-paper/ouro-1.4b.yaml");
const OURO_LARGE: &str = include_str!("../profiles/h100-paper/ouro-2.6b.yaml");
const HUGINN: &str = include_str!("../profiles/h100-paper/huginn-3.5b.yaml");

fn profile(text: &str) -> Profile {
    let profile: Profile = serde_yaml::from_str(text).unwrap_or_else(|error| panic!("{error}"));
    profile.check().unwrap_or_else(|error| panic!("{}: {error}", profile.name));
    profile
}

/// The core of a profile and of each of its variants.
fn cores(profile: &Profile) -> impl Iterator<Item = (&str, StageCost)> {
    let variants = profile.variants.iter().map(|(name, variant)| (name.as_str(), profile.with(variant).core));
    [("nominal", profile.core)].into_iter().chain(variants)
}

#[test]
fn saturation_batches_are_the_papers_in_every_variant() {
    for (text, published) in [(OURO, 140.0), (OURO_LARGE, 140.0), (HUGINN, 80.0)] {
        let profile = profile(text);
        for (variant, core) in cores(&profile) {
            let [short, long] = [128, 8192].map(|context| core.saturation_batch(context));
            assert!((short / published - 1.0).abs() < 0.005, "{} {variant}: B*(128) = {short}", profile.name);
            assert!((3.8..9.6).contains(&long), "{} {variant}: B*(8192) = {long}", profile.name);
        }
    }
}
