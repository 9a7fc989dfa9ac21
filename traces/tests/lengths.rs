//! The generators against the paper's published figures (Appendix C.1, Ouro's tokenizer) and the data they are fitted to.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use traces::LengthsConfig::{self, Alpaca, Arxiv, Sharegpt};
use traces::lengths::{LengthSource, Pair};

const DRAWS: usize = 200_000;
const MAX_TOTAL_TOKENS: u32 = 16_384;

fn draw(lengths: LengthsConfig, seed: u64) -> Vec<Pair> {
    LengthSource::new(&lengths, MAX_TOTAL_TOKENS).unwrap().stream(seed).take(DRAWS).collect()
}

fn mean(tokens: impl ExactSizeIterator<Item = u32>) -> f64 {
    let count = tokens.len() as f64;
    tokens.map(f64::from).sum::<f64>() / count
}

fn quantile(tokens: impl Iterator<Item = u32>, q: f64) -> f64 {
    let mut tokens: Vec<u32> = tokens.collect();
    tokens.sort_unstable();
    f64::from(tokens[(q * (tokens.len() - 1) as f64).round() as usize])
}

fn within(what: &str, got: f64, expect: f64, share: f64) {
    assert!((got / expect - 1.0).abs() <= share, "{what}: {got:.1} is not within {share} of {expect}");
}

/// Spearman's rank correlation.
fn rank_correlation(pairs: &[Pair]) -> f64 {
    let ranks = |tokens: Vec<u32>| {
        let mut order: Vec<usize> = (0..tokens.len()).collect();
        order.sort_by_key(|&index| tokens[index]);
        let mut ranks = vec![0.0; tokens.len()];
        for tie in order.chunk_by(|&a, &b| tokens[a] == tokens[b]).scan(0, |first, tie| {
            *first += tie.len();
            Some((*first - tie.len(), tie))
        }) {
            tie.1.iter().for_each(|&index| ranks[index] = tie.0 as f64 + (tie.1.len() - 1) as f64 / 2.0);
        }
        ranks
    };
    let (x, y) = (ranks(pairs.iter().map(|pair| pair.0).collect()), ranks(pairs.iter().map(|pair| pair.1).collect()));
    let middle = (pairs.len() - 1) as f64 / 2.0;
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - middle) * (b - middle)).sum::<f64>();
    product(&x, &y) / (product(&x, &x) * product(&y, &y)).sqrt()
}

#[test]
fn means_are_the_papers_within_two_percent() {
    let check = |lengths, prompt, output| {
        for seed in [1, 2, 3] {
            let pairs = draw(lengths, seed);
            within(&format!("{lengths:?} prompt"), mean(pairs.iter().map(|pair| pair.0)), prompt, 0.02);
            within(&format!("{lengths:?} output"), mean(pairs.iter().map(|pair| pair.1)), output, 0.02);
        }
    };
    check(Sharegpt, 267.0, 311.0);
    check(Alpaca, 18.0, 60.0);
    check(Arxiv, 6989.0, 370.0);
}

#[test]
fn published_quantiles_are_met_within_five_percent() {
    let sharegpt = draw(Sharegpt, 1);
    within("sharegpt prompt p99", quantile(sharegpt.iter().map(|pair| pair.0), 0.99), 3264.0, 0.05);
    let alpaca = draw(Alpaca, 1);
    within("alpaca prompt p99", quantile(alpaca.iter().map(|pair| pair.0), 0.99), 75.0, 0.05);
    let arxiv = draw(Arxiv, 1);
    within("arxiv prompt p50", quantile(arxiv.iter().map(|pair| pair.0), 0.5), 6436.0, 0.02);
    within("arxiv output p50", quantile(arxiv.iter().map(|pair| pair.1), 0.5), 199.0, 0.02);
}

#[test]
fn arxivs_two_parts_together_have_the_quantiles_and_the_cluster_of_the_whole() {
    let pairs = draw(Arxiv, 4);
    for (q, prompt, output) in
        [(0.1, 2341.0, 88.0), (0.9, 12_673.0, 411.0), (0.95, 14_150.0, 590.0), (0.99, 15_665.0, 5976.0)]
    {
        within(&format!("prompt at {q}"), quantile(pairs.iter().map(|pair| pair.0), q), prompt, 0.05);
        within(&format!("output at {q}"), quantile(pairs.iter().map(|pair| pair.1), q), output, 0.05);
    }
    let swapped = pairs.iter().filter(|(prompt, output)| output > prompt);
    let share = swapped.clone().count() as f64 / DRAWS as f64;
    let tokens: f64 =
        swapped.map(|pair| f64::from(pair.1)).sum::<f64>() / pairs.iter().map(|pair| f64::from(pair.1)).sum::<f64>();
    within("share of records whose output is longer than the prompt", share, 0.0234, 0.1);
    within("their share of output tokens", tokens, 0.388, 0.1);
}

#[test]
fn rank_correlations_are_the_measured_ones() {
    let check = |lengths, expect: f64| {
        let got = rank_correlation(&draw(lengths, 5));
        assert!((got - expect).abs() < 0.02, "{lengths:?}: {got:.3}, not {expect}");
    };
    check(Sharegpt, 0.117);
    check(Alpaca, -0.245);
    check(Arxiv, 0.176);
}

#[test]
fn every_pair_passes_the_papers_filter() {
    for lengths in [Sharegpt, Alpaca, Arxiv] {
        let passes = |&(prompt, output): &Pair| prompt >= 4 && output >= 4 && prompt + output <= MAX_TOTAL_TOKENS;
        assert!(draw(lengths, 6).iter().all(passes), "{lengths:?}");
    }
}

#[test]
fn a_filter_that_leaves_nothing_is_refused() {
    let error = LengthSource::new(&Arxiv, 256).unwrap_err().to_string();
    assert_eq!(
        error,
        "`max_total_tokens: 256` leaves fewer than 1 in 100 arxiv requests: raise it, or use `fixed` lengths"
    );
    assert!(
        LengthSource::new(&Arxiv, 4096).unwrap().stream(1).take(1000).all(|(prompt, output)| prompt + output <= 4096)
    );
}
