//! The stages: positions come from their places, pass the layers together, and go back.

use super::element::Element;
use super::executor::{CpuBackend, Running};
use super::lanes::{Lanes, Region};
use super::matrix::Matrix;
use super::model::distance;
use super::readout::{argmax, divergence, entropy};
use crate::layout::Layout;
use crate::live::{Lane, NOT_FINITE, Ran, Work, choose};
use crate::models::criterion::Criterion;
use crate::units::Depth;

/// Lanes whose logits are computed at once to be scored.
const SCORED_AT_ONCE: usize = 64;

/// Activations on their way through the loop.
struct Start {
    state: Matrix,
    /// The embedded tokens that every loop sees; no rows where none does.
    injected: Matrix,
}

impl<E: Element> CpuBackend<E> {
    /// Embedding and the layers before the loop; the places are then at depth 0.
    pub(super) fn prelude(&mut self, lanes: &[Lane]) {
        let Start { state, injected } = self.start(lanes);
        for (i, lane) in lanes.iter().enumerate() {
            let injected = if injected.rows() > 0 { injected.row(i).to_vec() } else { Vec::new() };
            let state = state.row(i).to_vec();
            self.running[lane.place as usize] = Running { state, injected, ..Running::default() };
        }
    }

    /// One loop for every position, each at its own depth.
    pub(super) fn core(&mut self, work: &Work) -> Ran {
        let lanes = &work.lanes;
        for lane in lanes {
            let ran = self.running[lane.place as usize].depth;
            assert_eq!(lane.depth.0, ran + 1, "request {} runs loop {} after {ran}", lane.request.0, lane.depth);
        }
        let running = lanes.iter().map(|lane| &self.running[lane.place as usize]);
        let state = Matrix::from_rows(self.model.hidden, running.clone().map(|running| running.state.as_slice()));
        let injected = match self.model.form.injects() {
            true => Matrix::from_rows(self.model.hidden, running.map(|running| running.injected.as_slice())),
            false => Matrix::zeros(0, self.model.hidden),
        };
        let depths: Vec<Depth> = lanes.iter().map(|lane| lane.depth).collect();
        let state = self.cycle(state, &injected, lanes, &depths);
        let signals = if work.signals { self.signals(&state, lanes) } else { Vec::new() };
        for (i, lane) in lanes.iter().enumerate() {
            let running = &mut self.running[lane.place as usize];
            running.depth = lane.depth.0;
            running.state.copy_from_slice(state.row(i));
        }
        Ran { signals, ..Ran::default() }
    }

    /// What the exit criterion looks at, of every lane's new state.
    fn signals(&mut self, state: &Matrix, lanes: &[Lane]) -> Vec<[f32; 2]> {
        let last = |i: usize| &self.running[lanes[i].place as usize].state;
        match self.criterion {
            Criterion::Hazard => (0..lanes.len()).map(|i| self.model.hazards(state.row(i))).collect(),
            Criterion::LatentDifference => (0..lanes.len()).map(|i| [distance(state.row(i), last(i)), 0.0]).collect(),
            Criterion::EntropyDifference => self.read_out(state, lanes, |_, logits| entropy(logits)),
            Criterion::ArgmaxStability => self.read_out(state, lanes, |_, logits| argmax(logits)),
            Criterion::Kl => self.read_out(state, lanes, |last, logits| {
                let signal = divergence((!last.is_empty()).then_some(&**last), logits);
                last.clear();
                last.extend_from_slice(logits);
                signal
            }),
        }
    }

    /// What the logits say that every lane would give if it left now. The layers behind the loop store the position's keys
    /// and values as its coda will, which then stores them again. `signal` takes the last loop's logits, if it keeps any.
    fn read_out(
        &mut self,
        state: &Matrix,
        lanes: &[Lane],
        signal: impl Fn(&mut Vec<f32>, &[f32]) -> f32,
    ) -> Vec<[f32; 2]> {
        let x = self.end(state.clone(), lanes);
        let logits = self.model.logits(&x);
        let lanes = lanes.iter().enumerate();
        lanes.map(|(i, lane)| [signal(&mut self.running[lane.place as usize].logits, logits.row(i)), 0.0]).collect()
    }

    /// The layers behind the loop and the LM head.
    pub(super) fn coda(&mut self, work: &Work) -> Ran {
        for lane in &work.lanes {
            let ran = self.running[lane.place as usize].depth;
            assert_eq!(lane.depth.0, ran, "request {} is read at {} after {ran} loops", lane.request.0, lane.depth);
            let copies = self.options.copy_skipped_planes && self.config.scheduler.kv.layout == Layout::LastExited;
            if copies && lane.leaves {
                self.copy_skipped_planes(lane);
            }
        }
        let states = work.lanes.iter().map(|lane| self.running[lane.place as usize].state.as_slice());
        let state = Matrix::from_rows(self.model.hidden, states);
        let x = self.end(state, &work.lanes);
        self.emit(&x, work)
    }

    /// Prelude, all loops and coda in one pass: a decode step, or chunks of prompts.
    ///
    /// Every token of a chunk runs a loop before any runs the next, so in `shared` a chunk sees its own tokens at the
    /// current loop and earlier chunks at their last: chunking is part of the result there, and packing never is.
    pub(super) fn full_depth(&mut self, work: &Work) -> Ran {
        let Start { mut state, injected } = self.start(&work.lanes);
        for depth in 1..=self.config.scheduler.r_max.0 {
            state = self.cycle(state, &injected, &work.lanes, &vec![Depth(depth); work.lanes.len()]);
        }
        let x = self.end(state, &work.lanes);
        self.emit(&x, work)
    }

    /// The first state of every position.
    fn start(&mut self, lanes: &[Lane]) -> Start {
        let ids = lanes.iter().map(|lane| lane.token.unwrap_or(self.tokens[lane.place as usize]));
        let embedded = self.model.embed(ids);
        let boundary = self.boundary_lanes(lanes);
        let x = self.model.prelude(embedded, &boundary, &mut self.boundary);
        match self.model.form.injects() {
            true => Start { state: self.initial_state(lanes), injected: x },
            false => Start { state: x, injected: Matrix::zeros(0, self.model.hidden) },
        }
    }

    fn initial_state(&self, lanes: &[Lane]) -> Matrix {
        let mut state = Matrix::zeros(lanes.len(), self.model.hidden);
        for (i, lane) in lanes.iter().enumerate() {
            for (channel, s) in state.row_mut(i).iter_mut().enumerate() {
                *s = E::round(self.config.initial_state.value(lane.position, channel as u32, self.model.noise_std));
            }
        }
        state
    }

    /// One application of the core.
    fn cycle(&mut self, state: Matrix, injected: &Matrix, lanes: &[Lane], depths: &[Depth]) -> Matrix {
        let lanes = Lanes::new(&mut self.places, &self.core, lanes, Region::Core(depths));
        self.model.core(state, injected, &lanes, &mut self.core)
    }

    /// The layers behind the loop.
    fn end(&mut self, state: Matrix, lanes: &[Lane]) -> Matrix {
        let lanes = self.boundary_lanes(lanes);
        self.model.coda(state, &lanes, &mut self.boundary)
    }

    fn boundary_lanes(&mut self, lanes: &[Lane]) -> Lanes {
        match self.config.scheduler.kv.boundary_layers {
            true => Lanes::new(&mut self.places, &self.boundary, lanes, Region::Boundary),
            false => Lanes::default(),
        }
    }

    /// LM head and choice, for the positions that make a token or are scored.
    fn emit(&mut self, x: &Matrix, work: &Work) -> Ran {
        let of_draws = self.logits(x, work.draws.iter().map(|draw| draw.lane));
        let (mut chosen, mut logits) = (Vec::new(), Vec::new());
        for (i, draw) in work.draws.iter().enumerate() {
            let id = choose(of_draws.row(i), &draw.sampling, draw.token, draw.banned.ids());
            if let Some(id) = id {
                self.tokens[draw.place as usize] = id;
            }
            chosen.push(id.unwrap_or(NOT_FINITE));
            if self.config.keep_logits {
                logits.push(of_draws.row(i).to_vec());
            }
        }
        let mut scores = Vec::new();
        // In pieces, since a long prompt's logits are large.
        for piece in work.scores.chunks(SCORED_AT_ONCE) {
            let logits = self.logits(x, piece.iter().map(|score| score.lane));
            scores.extend(piece.iter().enumerate().filter_map(|(i, score)| score.of(logits.row(i), &chosen)));
        }
        Ran { chosen, logits, scores, ..Ran::default() }
    }

    /// Logits of some lanes, in order.
    fn logits(&self, x: &Matrix, lanes: impl ExactSizeIterator<Item = u32>) -> Matrix {
        self.model.logits(&Matrix::from_rows(x.width(), lanes.map(|lane| x.row(lane as usize))))
    }

    /// Fills the planes that a token skipped, after which it counts as having left at full depth.
    fn copy_skipped_planes(&mut self, lane: &Lane) {
        let place = |plane| self.places.core_place(lane.slot, plane, lane.position);
        let from = self.core.address(place(lane.depth.0 - 1));
        for plane in lane.depth.0..self.places.planes() {
            let to = self.core.address(place(plane));
            self.core.copy_token(from, to);
        }
        self.places.mark(lane.slot, lane.position, self.config.scheduler.r_max);
    }
}
