//! Devices and their limits.

use serde::{Deserialize, Serialize};

/// A device and the limits of its datasheet (or measured ones).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSpec {
    /// Its name.
    pub name: String,
    /// Memory bandwidth.
    pub bandwidth_gb_per_s: f64,
    /// Dense bf16 matrix throughput.
    pub compute_tflops: f64,
}

impl DeviceSpec {
    /// Devices whose datasheets are built in (bandwidth; dense bf16 throughput without sparsity).
    const DATASHEETS: [(&'static str, f64, f64); 6] = [
        ("a100-80gb", 2039.0, 312.0),
        ("h100-80gb", 3350.0, 989.0),
        ("h200", 4800.0, 989.0),
        ("b200", 8000.0, 2250.0),
        ("l40s", 864.0, 362.0),
        ("mi300x", 5300.0, 1307.0),
    ];

    /// A device by its datasheet.
    pub fn datasheet(name: &str) -> Option<Self> {
        let (name, bandwidth_gb_per_s, compute_tflops) =
            Self::DATASHEETS.into_iter().find(|(known, ..)| *known == name)?;
        Some(Self { name: name.into(), bandwidth_gb_per_s, compute_tflops })
    }

    /// The names that [`Self::datasheet`] knows.
    pub fn datasheets() -> impl Iterator<Item = &'static str> {
        Self::DATASHEETS.into_iter().map(|(name, ..)| name)
    }
}
