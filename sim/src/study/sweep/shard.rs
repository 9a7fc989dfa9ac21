//! Which points a worker runs.

use std::fmt;
use std::str::FromStr;

/// Every `count`-th point from `index` on, counted from 0, as array jobs count their tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: usize,
    count: usize,
}

impl Shard {
    /// All points.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// The shard's points among `points`.
    pub fn points(self, points: usize) -> impl Iterator<Item = usize> {
        (self.index..points).step_by(self.count)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        match parts {
            Some((index, count)) if index < count => Ok(Self { index, count }),
            Some((_, count @ 1..)) => Err(format!("shards count from 0: 0/{count} to {}/{count}", count - 1)),
            _ => Err("write it as i/n, such as 0/8".into()),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

impl Shard {
    /// As part of a file's name.
    pub(super) fn file_stem(self) -> String {
        format!("{}-of-{}", self.index, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_part_the_points() {
        let of = |text: &str| text.parse::<Shard>().map(|shard| shard.points(7).collect::<Vec<_>>());
        assert_eq!(of("0/3"), Ok(vec![0, 3, 6]));
        assert_eq!(of("2/3"), Ok(vec![2, 5]));
        assert_eq!(of("3/3"), Err("shards count from 0: 0/3 to 2/3".into()));
        assert!(of("1").is_err() && of("0/0").is_err() && of("-1/3").is_err());
    }
}
