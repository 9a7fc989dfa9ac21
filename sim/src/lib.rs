//! The simulator, a room per question: what is asked for ([`scenario`]), what comes of it ([`run`]), what many runs say
//! ([`study`]), what a real executor does ([`live`]), how far the two are apart ([`validate`]), what any server does
//! ([`observe`]), and what early exits cost in right answers ([`accuracy`]).

pub mod scenario;

pub mod run;

pub mod study;

pub mod live;

pub mod validate;

pub mod observe;

pub mod accuracy;

pub mod json_lines;
pub mod parallel;
