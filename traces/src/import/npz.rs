//! Arrays of numpy's `.npz`, read number by number, so that hundreds of megabytes of probabilities are never in memory.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use half::f16;
use npyz::{DType, NpyFile, NpyReader, Order};
use zip::ZipArchive;
use zip::result::ZipError;

use crate::error::TracesError;

/// Bytes that are inflated at once.
const BUFFER_BYTES: usize = 1 << 16;

/// An open `.npz`.
pub(super) struct Npz<'a> {
    path: &'a Path,
    archive: ZipArchive<BufReader<File>>,
}

/// Where an array of an archive is read from.
type ZipMember<'a> = BufReader<Box<dyn Read + 'a>>;

/// An array in C order, and where reading it is.
pub(super) struct Array<'a> {
    pub(super) shape: Vec<u64>,
    numbers: Numbers<'a>,
}

enum Numbers<'a> {
    F16(NpyReader<f16, ZipMember<'a>>),
    F32(NpyReader<f32, ZipMember<'a>>),
    F64(NpyReader<f64, ZipMember<'a>>),
    I32(NpyReader<i32, ZipMember<'a>>),
    I64(NpyReader<i64, ZipMember<'a>>),
}

impl<'a> Npz<'a> {
    pub(super) fn open(path: &'a Path) -> Result<Self, TracesError> {
        let file = File::open(path).map_err(|source| TracesError::Io { path: path.into(), source })?;
        let archive = ZipArchive::new(BufReader::new(file))
            .map_err(|error| TracesError::Import { path: path.into(), problem: format!("is no .npz: {error}") })?;
        Ok(Self { path, archive })
    }

    /// The arrays' names.
    pub(super) fn names(&self) -> Vec<String> {
        let names = self.archive.file_names().flatten();
        names.map(|name| name.strip_suffix(".npy").unwrap_or(&name).into()).collect()
    }

    /// Begins to read an array; `None` if there is none of the name.
    pub(super) fn array(&mut self, name: &str) -> Result<Option<Array<'_>>, TracesError> {
        let path = self.path;
        let fault =
            |problem: String| TracesError::Import { path: path.into(), problem: format!("array `{name}` {problem}") };
        let entry = match self.archive.by_name(&format!("{name}.npy")) {
            Ok(entry) => BufReader::with_capacity(BUFFER_BYTES, Box::new(entry) as Box<dyn Read + '_>),
            Err(ZipError::FileNotFound) => return Ok(None),
            Err(error) => return Err(fault(format!("cannot be read: {error}"))),
        };
        let file = NpyFile::new(entry).map_err(|error| fault(format!("is no .npy: {error}")))?;
        let shape = file.shape().to_vec();
        if file.order() != Order::C && shape.len() > 1 {
            return Err(fault("is in Fortran order: save it with numpy.ascontiguousarray".into()));
        }
        let DType::Plain(kind) = file.dtype() else { return Err(fault("must hold plain numbers".into())) };
        let numbers = match kind.to_string().trim_start_matches(['<', '>', '=', '|']) {
            "f2" => file.data().map(Numbers::F16),
            "f4" => file.data().map(Numbers::F32),
            "f8" => file.data().map(Numbers::F64),
            "i4" => file.data().map(Numbers::I32),
            "i8" => file.data().map(Numbers::I64),
            other => {
                return Err(fault(format!("holds numbers of type {other}, and must hold f2, f4, f8, i4 or i8")));
            }
        };
        let numbers = numbers.map_err(|error| fault(format!("cannot be read: {error}")))?;
        Ok(Some(Array { shape, numbers }))
    }
}

impl Array<'_> {
    /// Whether it holds floats.
    pub(super) fn is_float(&self) -> bool {
        !matches!(self.numbers, Numbers::I32(_) | Numbers::I64(_))
    }

    /// The next number; integers up to 2^53 are exact. An error behind the last one.
    pub(super) fn next(&mut self) -> io::Result<f64> {
        let number = match &mut self.numbers {
            Numbers::F16(numbers) => numbers.next().map(|number| number.map(f64::from)),
            Numbers::F32(numbers) => numbers.next().map(|number| number.map(f64::from)),
            Numbers::F64(numbers) => numbers.next(),
            Numbers::I32(numbers) => numbers.next().map(|number| number.map(f64::from)),
            Numbers::I64(numbers) => numbers.next().map(|number| number.map(|number| number as f64)),
        };
        number.unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()))
    }
}
