//! The contexts of a timed batch. No serving batch has equal ones, and attention's time depends on it: on begun tiles, on the
//! longest row, on how work fills the device. So rows are spread evenly from nothing to twice the mean, as those of sequences in
//! every part of their generation are.

/// KV entries that each of `batch` rows reads, with exactly `mean` (at least 1) on average; one row reads just so many.
///
/// Rows of the second half of a batch, rounded up to a power of two, are paired with those of the first: two such rows read
/// twice the mean together, and so fit into the blocks of two equal ones.
pub fn contexts(batch: u32, mean: u32) -> Vec<u32> {
    let half = batch.next_power_of_two() / 2;
    if half == 0 {
        return vec![mean];
    }
    let pairs = batch - half;
    // Of `rows` even steps up to `end`, the middle of step `row`.
    let step = |row: u32, rows: u32, end: u32| {
        let middle = u64::from(2 * row + 1) * u64::from(end) / u64::from(2 * rows);
        (middle as u32).max(1)
    };
    let first = (0..pairs).map(|row| step(row, pairs, mean));
    let alone = half - pairs;
    let unpaired = (0..alone).map(|row| {
        let mirror = alone - 1 - row;
        match row.cmp(&mirror) {
            std::cmp::Ordering::Less => step(row, alone, 2 * mean),
            std::cmp::Ordering::Equal => mean,
            std::cmp::Ordering::Greater => 2 * mean - step(mirror, alone, 2 * mean),
        }
    });
    let second = (0..pairs).map(|row| 2 * mean - step(row, pairs, mean));
    first.chain(unpaired).chain(second).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_reads_the_mean_on_average_and_pairs_read_twice_as_much() {
        for batch in 1..=130 {
            for mean in [1, 2, 7, 32, 100, 1024] {
                let contexts = contexts(batch, mean);
                assert_eq!(contexts.len(), batch as usize);
                assert_eq!(contexts.iter().sum::<u32>(), batch * mean, "{batch} rows of {mean}: {contexts:?}");
                assert!(contexts.iter().all(|context| (1..=2 * mean).contains(context)), "{contexts:?}");
                let half = batch.next_power_of_two() as usize / 2;
                for (first, second) in contexts.iter().zip(&contexts[half..]).filter(|_| batch > 1) {
                    assert_eq!(first + second, 2 * mean);
                }
            }
        }
        assert_eq!(contexts(1, 100), [100]);
        assert_eq!(contexts(2, 100), [50, 150]);
        assert_eq!(contexts(4, 100), [25, 75, 175, 125]);
        assert_eq!(contexts(5, 100), [50, 33, 100, 167, 150]);
    }
}
