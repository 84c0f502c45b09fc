//! Pure: the archive of a bundle, a tar file (POSIX.1-1988, ustar) in gzip. Each file of the archive is a gzip member of
//! its own, so that its compressed size is known before it is written; gzip and tar read members that follow each other
//! as one stream.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{self, Write};

/// Size of a block of tar, in bytes.
const BLOCK: usize = 512;

/// Folder of all files.
const FOLDER: &str = "vsphere-ccm-bundle";

/// Maximum length of a name with its folder, in bytes.
const MAX_NAME: usize = 100;

/// Returns the compressed file with its header. `time` is in seconds since 1970.
///
/// # Errors
/// The name is too long.
pub fn member(name: &str, content: &[u8], time: i64) -> io::Result<Vec<u8>> {
    let mut encoder = encoder();
    encoder.write_all(&header(&format!("{FOLDER}/{name}"), content.len(), time)?)?;
    encoder.write_all(content)?;
    let rest = content.len() % BLOCK;
    if rest > 0 {
        encoder.write_all(&vec![0; BLOCK - rest])?;
    }
    encoder.finish()
}

/// Returns the compressed end of the archive.
///
/// # Errors
/// None: the result has the type of a write.
pub fn end() -> io::Result<Vec<u8>> {
    let mut encoder = encoder();
    encoder.write_all(&[0; 2 * BLOCK])?;
    encoder.finish()
}

fn encoder() -> GzEncoder<Vec<u8>> {
    GzEncoder::new(Vec::new(), Compression::default())
}

/// Returns the header of a regular file that its owner may read and write.
fn header(name: &str, size: usize, time: i64) -> io::Result<Vec<u8>> {
    if name.len() > MAX_NAME {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("the name {name} is too long")));
    }
    let fields = |checksum: &str| {
        let mut header = Vec::with_capacity(BLOCK);
        add_field(&mut header, name, MAX_NAME);
        add_field(&mut header, "0000600", 8);
        // User and group.
        add_field(&mut header, "0000000", 8);
        add_field(&mut header, "0000000", 8);
        add_field(&mut header, &format!("{size:011o}"), 12);
        add_field(&mut header, &format!("{:011o}", time.max(0)), 12);
        add_field(&mut header, checksum, 8);
        // A regular file.
        add_field(&mut header, "0", 1);
        // The target of a link.
        add_field(&mut header, "", 100);
        add_field(&mut header, "ustar", 6);
        add_field(&mut header, "00", 2);
        header.resize(BLOCK, 0);
        header
    };
    // The checksum counts as eight spaces in its own sum.
    let sum: u32 = fields("        ").into_iter().map(u32::from).sum();
    Ok(fields(&format!("{sum:06o}\0 ")))
}

/// Adds a field of this size, filled with zeros.
fn add_field(header: &mut Vec<u8>, text: &str, size: usize) {
    let end = header.len() + size;
    header.extend(text.bytes().take(size));
    header.resize(end, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::MultiGzDecoder;
    use std::io::Read;
    use tar::Archive;

    #[test]
    fn tar_reads_the_files_with_their_names_and_contents() {
        let contents =
            [("a.txt", vec![]), ("b.json", b"{}\n".to_vec()), ("c.bin", (0..=255).cycle().take(BLOCK * 3).collect())];
        let mut archive = Vec::new();
        for (name, content) in &contents {
            archive.extend(member(name, content, 1_795_000_000).unwrap());
        }
        archive.extend(end().unwrap());
        let mut read = Vec::new();
        for entry in Archive::new(MultiGzDecoder::new(archive.as_slice())).entries().unwrap() {
            let mut entry = entry.unwrap();
            let header = entry.header().clone();
            assert_eq!((header.mode().unwrap(), header.mtime().unwrap()), (0o600, 1_795_000_000));
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            read.push((entry.path().unwrap().display().to_string(), content));
        }
        let expected = contents.map(|(name, content)| (format!("{FOLDER}/{name}"), content));
        assert_eq!(read, expected);
    }

    #[test]
    fn a_header_has_one_block_and_a_name_that_does_not_fit_is_an_error() {
        for name in ["a", &"n".repeat(MAX_NAME)] {
            assert_eq!(header(name, 1 << 32, -1).unwrap().len(), BLOCK);
        }
        assert!(header(&"n".repeat(MAX_NAME + 1), 0, 0).is_err());
    }
}
