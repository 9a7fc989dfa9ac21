//! From a scenario to its runs: what is run ([`plan`]), on which device ([`modelled`]), once ([`serve`](mod@serve)), beside
//! the others and the bounds ([`compare`](mod@compare)), and what is written of it ([`output`]).

pub mod plan;

mod horizon;
pub mod shipped;

pub mod modelled;
mod replicas;
pub mod serve;

pub mod capacity;
pub mod compare;
pub mod repeats;
pub(crate) mod speed;

pub mod facts;
pub(crate) mod key;
pub mod output;
pub mod steps;
