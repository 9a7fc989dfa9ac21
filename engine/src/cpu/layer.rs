//! One transformer block of either family; they differ in where the norms stand.

use super::attention::attend;
use super::element::Element;
use super::kv::KvPool;
use super::lanes::Lanes;
use super::linear::Linear;
use super::matrix::Matrix;
use super::mlp::mlp;
use super::norm::{rms_norm, rms_norm_in_place};
use super::rope::Rope;
use crate::architecture::Family;

/// A block's weights.
#[derive(Debug)]
pub(super) struct Layer<E> {
    /// In the order in which they are applied: before and after attention, before and after the MLP.
    pub(super) norms: [Vec<f32>; 4],
    pub(super) qkv: Linear<E>,
    /// Huginn: added to queries, then keys, before they are turned.
    pub(super) qk_bias: Option<Vec<f32>>,
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
    /// Ouro norms each branch within the residual sum, Huginn norms the sum.
    pub(super) fn run(&self, family: Family, x: Matrix, lanes: &Lanes, cache: Cache<'_, E>, rope: &Rope<E>) -> Matrix {
        let [before_attention, after_attention, before_mlp, after_mlp] = &self.norms;
        let mut attended = self.attention(&rms_norm::<E>(&x, before_attention), lanes, cache, rope);
        match family {
            Family::Ouro => {
                rms_norm_in_place::<E>(&mut attended, after_attention);
                let x = add::<E>(attended, &x);
                let mut y = mlp(&rms_norm::<E>(&x, before_mlp), &self.gate_up, &self.down);
                rms_norm_in_place::<E>(&mut y, after_mlp);
                add::<E>(y, &x)
            }
            Family::Huginn => {
                let mut x = add::<E>(attended, &x);
                rms_norm_in_place::<E>(&mut x, after_attention);
                let y = mlp(&rms_norm::<E>(&x, before_mlp), &self.gate_up, &self.down);
                let mut x = add::<E>(y, &x);
                rms_norm_in_place::<E>(&mut x, after_mlp);
                x
            }
        }
    }

    /// Projects, turns, stores the new KV, and attends. All lanes store before any reads: a chunk attends to itself.
    fn attention(&self, x: &Matrix, lanes: &Lanes, cache: Cache<'_, E>, rope: &Rope<E>) -> Matrix {
        let mut qkv = self.qkv.apply(x);
        let width = qkv.width() / 3;
        let dim = rope.head_dim();
        for (row, lane) in lanes.iter().enumerate() {
            let row = qkv.row_mut(row);
            let (turned, values) = row.split_at_mut(2 * width);
            if let Some(bias) = &self.qk_bias {
                turned.iter_mut().zip(bias).for_each(|(x, bias)| *x = E::round(*x + bias));
            }
            turned.chunks_exact_mut(dim).for_each(|head| rope.rotate(lane.position, head));
            cache.pool.write(cache.layer, lane.write, &turned[width..], values);
        }
        self.out.apply(&attend(cache.pool, cache.layer, lanes, &qkv, dim))
    }
}

/// The residual sum, rounded.
fn add<E: Element>(mut y: Matrix, x: &Matrix) -> Matrix {
    y.data_mut().iter_mut().zip(x.data()).for_each(|(y, x)| *y = E::round(*y + x));
    y
}
