//! The decode stages: rows come from their slots, pass the layers together, and go back.

use super::element::Element;
use super::executor::{CpuError, CpuExecutor, Running};
use super::lanes::{Lanes, Region, Token};
use super::matrix::Matrix;
use super::model::distance;
use crate::architecture::Family;
use crate::batch::{Row, RowOutcome};
use crate::layout::Layout;
use crate::live::{OutputToken, Tables};
use crate::models::gate::{GateMemory, Signal};
use crate::scheduler::Finish;
use crate::units::Depth;

/// Activations on their way through the loop.
pub(super) struct Start {
    pub(super) state: Matrix,
    /// Huginn's injected embedding; no rows for Ouro.
    pub(super) injected: Matrix,
}

impl<E: Element> CpuExecutor<E> {
    /// Embedding and the layers before the loop; the slots are then at depth 0.
    pub(super) fn prelude(&mut self, rows: &[Row]) {
        let Start { state, injected } = self.start(&tokens(rows), rows);
        for (i, row) in rows.iter().enumerate() {
            let injected = if injected.rows() > 0 { injected.row(i).to_vec() } else { Vec::new() };
            self.running[row.slot.index()] =
                Running { state: state.row(i).to_vec(), injected, depth: 0, gate: GateMemory::default() };
        }
    }

    /// One loop for every row, each at its own depth.
    pub(super) fn core(&mut self, rows: &[Row]) -> Result<Vec<RowOutcome>, CpuError> {
        for row in rows {
            let ran = self.running[row.slot.index()].depth;
            assert_eq!(row.depth.0, ran + 1, "request {} runs loop {} after {ran}", row.request.0, row.depth);
        }
        let running = rows.iter().map(|row| &self.running[row.slot.index()]);
        let state = Matrix::from_rows(self.model.hidden, running.clone().map(|running| running.state.as_slice()));
        let injected = match self.model.family {
            Family::Ouro => Matrix::zeros(0, self.model.hidden),
            Family::Huginn => Matrix::from_rows(self.model.hidden, running.map(|running| running.injected.as_slice())),
        };
        let depths: Vec<Depth> = rows.iter().map(|row| row.depth).collect();
        let state = self.cycle(state, &injected, &tokens(rows), &depths);
        rows.iter().enumerate().map(|(i, row)| self.looped(row, state.row(i))).collect()
    }

    /// Takes a row's new state in and says what may be known of its exit.
    fn looped(&mut self, row: &Row, state: &[f32]) -> Result<RowOutcome, CpuError> {
        let running = &mut self.running[row.slot.index()];
        running.depth = row.depth.0;
        if let Some(gate) = self.exits.gate() {
            let signal = match gate.signal {
                Signal::Hazard => self.model.hazard(state),
                Signal::NextHazard => {
                    if row.depth == Depth::FIRST {
                        gate.survive(&mut running.gate, self.model.hazard(state));
                    }
                    self.model.next_hazard(state)
                }
                Signal::Distance => distance(state, &running.state),
            };
            gate.observe(&mut running.gate, row.depth, signal);
        }
        running.state.copy_from_slice(state);
        let leaves_after = self.exits.reveal(row, &running.gate)?;
        Ok(RowOutcome { leaves_after, finished: false })
    }

    /// The layers behind the loop and the LM head.
    pub(super) fn coda(&mut self, rows: &[Row]) -> Result<Vec<RowOutcome>, CpuError> {
        for row in rows {
            let ran = self.running[row.slot.index()].depth;
            assert_eq!(row.depth.0, ran, "request {} leaves at {} after {ran} loops", row.request.0, row.depth);
            if self.options.copy_skipped_planes && self.config.scheduler.kv.layout == Layout::LastExited {
                self.copy_skipped_planes(row);
            }
        }
        let states = rows.iter().map(|row| self.running[row.slot.index()].state.as_slice());
        let state = Matrix::from_rows(self.model.hidden, states);
        let x = self.end(state, &tokens(rows));
        self.speak(&x, rows, |row| row.depth)
    }

    /// A whole decode step at full depth.
    pub(super) fn forward(&mut self, rows: &[Row]) -> Result<Vec<RowOutcome>, CpuError> {
        let tokens = tokens(rows);
        let start = self.start(&tokens, rows);
        let x = self.full_depth(start, &tokens);
        let r_max = self.config.scheduler.r_max;
        self.speak(&x, rows, |_| r_max)
    }

    /// All loops and the layers behind them.
    pub(super) fn full_depth(&mut self, start: Start, tokens: &[Token]) -> Matrix {
        let Start { mut state, injected } = start;
        for depth in 1..=self.config.scheduler.r_max.0 {
            state = self.cycle(state, &injected, tokens, &vec![Depth(depth); tokens.len()]);
        }
        self.end(state, tokens)
    }

    /// The first state of every token, whose ids come from the transcripts.
    pub(super) fn start(&mut self, tokens: &[Token], rows: &[Row]) -> Start {
        let ids: Vec<u32> = rows
            .iter()
            .flat_map(|row| {
                let transcript = self.transcripts.get(row.request);
                (row.position..row.context()).map(|position| transcript.token_at(position))
            })
            .collect();
        let lanes = self.boundary_lanes(tokens);
        let x = self.model.prelude(self.model.embed(ids.into_iter()), &lanes, &mut self.boundary);
        match self.model.family {
            Family::Ouro => Start { state: x, injected: Matrix::zeros(0, self.model.hidden) },
            Family::Huginn => Start { state: self.initial_state(tokens), injected: x },
        }
    }

    fn initial_state(&self, tokens: &[Token]) -> Matrix {
        let mut state = Matrix::zeros(tokens.len(), self.model.hidden);
        for (i, token) in tokens.iter().enumerate() {
            for (channel, s) in state.row_mut(i).iter_mut().enumerate() {
                *s = E::round(self.config.initial_state.value(token.position, channel as u32));
            }
        }
        state
    }

    /// One application of the core.
    fn cycle(&mut self, state: Matrix, injected: &Matrix, tokens: &[Token], depths: &[Depth]) -> Matrix {
        let lanes = Lanes::new(&mut self.tables, &self.core, tokens, Region::Core(depths));
        self.model.core(state, injected, &lanes, &mut self.core)
    }

    /// The layers behind the loop.
    fn end(&mut self, state: Matrix, tokens: &[Token]) -> Matrix {
        let lanes = self.boundary_lanes(tokens);
        self.model.coda(state, &lanes, &mut self.boundary)
    }

    fn boundary_lanes(&mut self, tokens: &[Token]) -> Lanes {
        match self.config.scheduler.kv.boundary_layers {
            true => Lanes::new(&mut self.tables, &self.boundary, tokens, Region::Boundary),
            false => Lanes::default(),
        }
    }

    /// Chooses every row's output token: the largest logit, of equal ones the lowest id. Says which ended a sequence,
    /// unless length alone does.
    pub(super) fn speak(
        &mut self,
        x: &Matrix,
        rows: &[Row],
        depth: impl Fn(&Row) -> Depth,
    ) -> Result<Vec<RowOutcome>, CpuError> {
        let logits = self.model.logits(x);
        let mut told = Vec::new();
        for (i, row) in rows.iter().enumerate() {
            let logits = logits.row(i);
            let token = argmax(logits).ok_or(CpuError::NotFinite { request: row.request, token: row.token })?;
            let ends = match (self.config.scheduler.finish, self.config.eos) {
                (Finish::Length, _) => false,
                (Finish::Eos, _) if self.transcripts.has_ended(row.request) => false,
                (Finish::Eos, Some(eos)) => token == eos,
                (Finish::Eos, None) => self.transcripts.is_last(row.request, row.token),
            };
            let logits = self.config.keep_logits.then(|| logits.to_vec());
            self.transcripts.push(row.request, row.token, OutputToken { token, depth: depth(row), logits }, ends);
            if self.config.scheduler.finish == Finish::Eos {
                told.push(RowOutcome { leaves_after: None, finished: ends });
            }
        }
        Ok(told)
    }

    /// Fills the planes that a token skipped, after which it counts as having left at full depth.
    fn copy_skipped_planes(&mut self, row: &Row) {
        let place = |tables: &Tables, plane| tables.core_place(row.slot, plane, row.position);
        let from = self.core.address(place(&self.tables, row.depth.0 - 1));
        for plane in row.depth.0..self.tables.planes() {
            let to = self.core.address(place(&self.tables, plane));
            self.core.copy_token(from, to);
        }
        self.tables.write_core(row.slot, row.position, self.config.scheduler.r_max);
    }
}

/// One token a row.
fn tokens(rows: &[Row]) -> Vec<Token> {
    rows.iter().map(|row| Token { slot: row.slot, position: row.position }).collect()
}

/// The first index of the largest logit, or `None` if one is not finite.
fn argmax(logits: &[f32]) -> Option<u32> {
    let mut best = 0;
    for (i, logit) in logits.iter().enumerate() {
        if !logit.is_finite() {
            return None;
        }
        if *logit > logits[best] {
            best = i;
        }
    }
    Some(best as u32)
}
