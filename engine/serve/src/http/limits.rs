//! What one client may take of the server.

use std::time::Duration;

/// Bounds of connections, requests and what they ask for.
#[derive(Clone, Debug, clap::Args)]
pub struct Limits {
    /// Requests that may wait behind those that run; more are answered with 429. Each prompt of a call counts.
    #[arg(long, value_name = "REQUESTS", default_value_t = 1024)]
    pub max_queue: usize,
    /// Connections at once; more wait to be accepted.
    #[arg(long, value_name = "CONNECTIONS", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: u32,
    /// A request's body at most.
    #[arg(long, value_name = "MIB", default_value_t = 16)]
    pub max_body_mib: usize,
    /// A request's headers at most; at least 8.
    #[arg(long, value_name = "KIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(8..))]
    pub max_header_kib: u32,
    /// Time in which a request's headers must have come; also how long a connection may do nothing.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub header_timeout_s: u64,
    /// Time in which a request's body must have come.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub body_timeout_s: u64,
    /// How long a client may leave what it is sent unread before it is cut off.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub write_timeout_s: u64,
    /// Answers that one call may ask for: its prompts times its `n`.
    #[arg(long, value_name = "ANSWERS", default_value_t = 512)]
    pub max_choices: usize,
    /// Stop strings of a request.
    #[arg(long, value_name = "STRINGS", default_value_t = 16)]
    pub max_stops: usize,
}

/// Bytes of one stop string at most: text is held back as long as it may begin one.
pub(crate) const STOP_BYTES: usize = 1024;

impl Limits {
    pub(crate) fn body_bytes(&self) -> usize {
        self.max_body_mib << 20
    }

    pub(crate) fn header_bytes(&self) -> usize {
        (self.max_header_kib as usize) << 10
    }

    pub(crate) fn header_timeout(&self) -> Duration {
        Duration::from_secs(self.header_timeout_s)
    }

    pub(crate) fn body_timeout(&self) -> Duration {
        Duration::from_secs(self.body_timeout_s)
    }

    pub(crate) fn write_timeout(&self) -> Duration {
        Duration::from_secs(self.write_timeout_s)
    }
}

impl Default for Limits {
    /// As the command line has them.
    fn default() -> Self {
        Self {
            max_queue: 1024,
            max_connections: 4096,
            max_body_mib: 16,
            max_header_kib: 64,
            header_timeout_s: 30,
            body_timeout_s: 60,
            write_timeout_s: 60,
            max_choices: 512,
            max_stops: 16,
        }
    }
}
