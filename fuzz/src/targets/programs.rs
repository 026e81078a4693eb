//! Programs that a VM may boot.

/// An ELF file.
pub fn programs(bytes: &[u8]) {
    if let Ok(program) = config::elf_program(bytes) {
        assert!(!program.segments.is_empty() && program.segments.len() <= control::MAX_SEGMENTS);
        for segment in &program.segments {
            let end = segment.offset.checked_add(segment.file_bytes);
            assert!(end.is_some_and(|end| end <= bytes.len() as u64), "{segment:?}");
            assert!(segment.file_bytes <= segment.memory_bytes, "{segment:?}");
        }
    }
}
