//! Attention of single queries over paged KV, decode and prefill alike.
//!
//! A lane's result depends on its own context alone: scores, maximum, sum and weighted values run through the
//! positions in order, whatever else is in the batch and however a prompt was chunked.
//!
//! Where there are fewer KV heads than query heads, consecutive query heads share one.

use super::element::Element;
use super::exp::exp;
use super::kv::{KvPool, Part};
use super::lanes::Lanes;
use super::matrix::Matrix;
use super::parallel::for_each_chunk;

/// The attention of every lane's queries, which are the first `heads * head_dim` numbers of its row of `qkv`.
pub(super) fn attend<E: Element>(pool: &KvPool<E>, layer: usize, lanes: &Lanes, qkv: &Matrix, dim: usize) -> Matrix {
    let kv_heads = pool.heads();
    let width = qkv.width() - 2 * kv_heads * dim;
    let heads = width / dim;
    let sharing = heads / kv_heads;
    let scale = 1.0 / (dim as f32).sqrt();
    let mut out = Matrix::zeros(qkv.rows(), width);
    // Two passes of multiply-adds, and an exponential that costs about 32 operations a score.
    let flops = lanes.context_tokens() * heads * (4 * dim + 32);
    for_each_chunk(out.data_mut(), dim, flops, Vec::new, |scores, index, out| {
        let (row, head) = (index / heads, index % heads);
        let query = &qkv.row(row)[head * dim..][..dim];
        let context = lanes.context(lanes.lane(row));
        scores.clear();
        scores.extend(context.iter().map(|&at| scale * dot(query, pool.read(layer, at, Part::Keys, head / sharing))));
        let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        scores.iter_mut().for_each(|score| *score = exp(*score - largest));
        let sum: f32 = scores.iter().sum();
        for (&weight, &at) in scores.iter().zip(context) {
            let value = pool.read(layer, at, Part::Values, head / sharing);
            out.iter_mut().zip(value).for_each(|(out, value)| *out += weight * value.widen());
        }
        out.iter_mut().for_each(|out| *out = E::round(*out / sum));
    });
    out
}

/// In eight interleaved partial sums, added in order: a fixed order that vectorises.
fn dot<E: Element>(query: &[f32], key: &[E]) -> f32 {
    let mut sums = [0.0f32; 8];
    let (queries, last_query) = query.as_chunks::<8>();
    let (keys, last_key) = key.as_chunks::<8>();
    for (query, key) in queries.iter().zip(keys) {
        for i in 0..8 {
            sums[i] += query[i] * key[i].widen();
        }
    }
    for (sum, (query, key)) in sums.iter_mut().zip(last_query.iter().zip(last_key)) {
        *sum += query * key.widen();
    }
    sums.iter().sum()
}
