//! One transformer block; families differ in where the norms stand.

use super::attention::attend;
use super::element::Element;
use super::kv::KvPool;
use super::lanes::Lanes;
use super::linear::Linear;
use super::matrix::Matrix;
use super::mlp::mlp;
use super::norm::Norm;
use super::rope::Rope;
use crate::models::family::After;

/// A block's weights.
#[derive(Debug)]
pub(super) struct Layer<E> {
    /// In the order in which they are applied: before and after attention, before and after the MLP.
    pub(super) norms: [Option<Norm>; 4],
    pub(super) qkv: Linear<E>,
    /// Added to queries, then keys, before they are turned.
    pub(super) qk_bias: Option<Vec<f32>>,
    /// Of all queries, and of all keys, before they are turned.
    pub(super) qk_norm: Option<[Norm; 2]>,
    pub(super) out: Linear<E>,
    pub(super) gate_up: Linear<E>,
    pub(super) down: Linear<E>,
}

/// Where a block keeps its KV: a pool, and its layer there.
pub(super) struct Cache<'a, E> {
    pub(super) pool: &'a mut KvPool<E>,
    pub(super) layer: usize,
}

impl<E: Element> Layer<E> {
    /// Attention, then the MLP, with norms where `after` and the weights have them.
    pub(super) fn run(&self, after: After, x: Matrix, lanes: &Lanes, cache: Cache<'_, E>, rope: &Rope<E>) -> Matrix {
        let [before_attention, after_attention, before_mlp, after_mlp] = &self.norms;
        let before = |norm: &Option<Norm>, x: &Matrix| norm.as_ref().map_or_else(|| x.clone(), |norm| norm.of::<E>(x));
        let attended = self.attention(&before(before_attention, &x), lanes, cache, rope);
        let x = residual::<E>(after, after_attention, attended, &x);
        let y = mlp(&before(before_mlp, &x), &self.gate_up, &self.down);
        residual::<E>(after, after_mlp, y, &x)
    }

    /// Projects, turns, stores the new KV, and attends. All lanes store before any reads: a chunk attends to itself.
    fn attention(&self, x: &Matrix, lanes: &Lanes, cache: Cache<'_, E>, rope: &Rope<E>) -> Matrix {
        let mut qkv = self.qkv.apply(x);
        let dim = rope.head_dim();
        let kv_width = cache.pool.heads() * dim;
        let queries = qkv.width() - 2 * kv_width;
        for (row, lane) in lanes.iter().enumerate() {
            let row = qkv.row_mut(row);
            let (turned, values) = row.split_at_mut(queries + kv_width);
            if let Some([of_queries, of_keys]) = &self.qk_norm {
                of_queries.apply_to::<E>(&mut turned[..queries]);
                of_keys.apply_to::<E>(&mut turned[queries..]);
            }
            if let Some(bias) = &self.qk_bias {
                turned.iter_mut().zip(bias).for_each(|(x, bias)| *x = E::round(*x + bias));
            }
            turned.chunks_exact_mut(dim).for_each(|head| rope.rotate(lane.position, head));
            cache.pool.write(cache.layer, lane.write, &turned[queries..], values);
        }
        self.out.apply(&attend(cache.pool, cache.layer, lanes, &qkv, dim))
    }
}

/// The sum of a branch and the residual stream, with the norm on the branch or on the sum.
fn residual<E: Element>(after: After, norm: &Option<Norm>, mut branch: Matrix, x: &Matrix) -> Matrix {
    let norm = |x: &mut Matrix| norm.iter().for_each(|norm| norm.apply::<E>(x));
    if after == After::Branch {
        norm(&mut branch);
    }
    let mut sum = add::<E>(branch, x);
    if after == After::Sum {
        norm(&mut sum);
    }
    sum
}

/// The residual sum, rounded.
fn add<E: Element>(mut y: Matrix, x: &Matrix) -> Matrix {
    y.data_mut().iter_mut().zip(x.data()).for_each(|(y, x)| *y = E::round(*y + x));
    y
}
