//! What a profile says of where it was measured.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::units::Nanos;

/// The processor's name, as the system reports it.
pub(super) fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    named.map_or_else(|| format!("{} CPU", std::env::consts::ARCH), |(_, name)| name.trim().to_owned())
}

/// The version of NVIDIA's driver, as the kernel module reports it.
pub(super) fn nvidia_driver() -> String {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let version =
        text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'));
    version.unwrap_or("unknown").to_owned()
}

/// For how long this process's threads wanted to run and had no core, in sum; zero where the system does not say.
pub(super) fn run_delay() -> Nanos {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let delays = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        // Time on a core, time in the queue for one, turns.
        text.split(' ').nth(1)?.parse::<u64>().ok()
    });
    Nanos(delays.sum())
}

/// Today's date in UTC, year first.
#[expect(clippy::disallowed_methods, reason = "a measurement has a date, unlike a simulation")]
pub(super) fn today() -> String {
    date(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// The date of a time since 1970. Years are counted from March, so that leap days are at their ends.
fn date(since_1970: Duration) -> String {
    let days = since_1970.as_secs() / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_the_calendars() {
        for (day, expected) in [(0, "1970-01-01"), (58, "1970-02-28"), (11_016, "2000-02-29"), (19_782, "2024-02-29")] {
            assert_eq!(date(Duration::from_secs(day * 86_400 + 86_399)), expected);
        }
    }
}
