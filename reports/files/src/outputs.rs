//! Nothing that a command reads is written over by what it writes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Outputs that cannot be written as they were asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum Clash {
    /// An output is a file that is read.
    #[error(
        "{} would be written over, and it is read as {}: write to another place",
        output.display(),
        input.display()
    )]
    Input { input: PathBuf, output: PathBuf },
    /// Two outputs are one file.
    #[error("{} and {} would be written to the same place: give one of them another name", first.display(), second.display())]
    Twice { first: PathBuf, second: PathBuf },
}

/// Checks that outputs are neither inputs nor each other, however the paths are spelled: relatively, or through links.
///
/// # Errors
/// The first output that is.
pub fn check_outputs<I, O>(inputs: I, outputs: O) -> Result<(), Clash>
where
    I: IntoIterator<Item: AsRef<Path>>,
    O: IntoIterator<Item: AsRef<Path>>,
{
    let inputs: BTreeMap<PathBuf, PathBuf> =
        inputs.into_iter().map(|path| (place(path.as_ref()), path.as_ref().into())).collect();
    let mut written: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    for output in outputs {
        let output = output.as_ref();
        let place = place(output);
        if let Some(input) = inputs.get(&place) {
            return Err(Clash::Input { input: input.clone(), output: output.into() });
        }
        if let Some(first) = written.insert(place, output.into()) {
            return Err(Clash::Twice { first, second: output.into() });
        }
    }
    Ok(())
}

/// Where a path leads, links followed; a file that is not there yet is a name in its folder.
fn place(path: &Path) -> PathBuf {
    if let Ok(real) = fs::canonicalize(path) {
        return real;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.into());
    folder.join(path.file_name().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    type TestResult = Result<(), Box<dyn std::error::Error>>;

    #[test]
    fn a_file_is_the_same_however_it_is_spelled() -> TestResult {
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("sub"))?;
        fs::write(at("read.csv"), "")?;
        let refused = |output: PathBuf| check_outputs([at("read.csv")], [at("new.csv"), output]);
        for same in ["read.csv", "./read.csv", "sub/../read.csv"] {
            let clash = Clash::Input { input: at("read.csv"), output: at(same) };
            assert_eq!(refused(at(same)), Err(clash), "{same}");
        }
        assert_eq!(refused(at("sub/read.csv")), Ok(()));
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(at("read.csv"), at("link.csv"))?;
            std::os::unix::fs::symlink(folder.path(), at("sub/up"))?;
            for same in ["link.csv", "sub/up/read.csv"] {
                assert!(matches!(refused(at(same)), Err(Clash::Input { .. })), "{same}");
            }
            assert!(check_outputs([at("link.csv")], [at("read.csv")]).is_err());
        }
        Ok(())
    }

    #[test]
    fn two_outputs_are_two_files() -> TestResult {
        let folder = tempfile::tempdir()?;
        let (first, second) = (folder.path().join("new"), folder.path().join("./new"));
        let twice = check_outputs(&[] as &[&Path], [&first, &second]);
        assert_eq!(twice, Err(Clash::Twice { first, second }));
        Ok(())
    }
}
