//! The vendor-specific status codes (SCT 7h) by which a drive tells why a command failed.

/// Passes every status code of a drive to the macro `$with`, as `NAME = code, "meaning";`. So drive and client make of the one table
/// what each needs.
#[macro_export]
macro_rules! drive_statuses {
    ($with:ident) => {
        $with! {
            METADATA_INVALID = 0xC0, "the secure computing metadata is invalid";
            METADATA_MISMATCH = 0xC1, "the blocks of the command do not belong to one part of one object";
            WRONG_PARAMETERS = 0xC2, "the parameter set is unknown, or not the one that the key id is in use with";
            WRONG_SIZE = 0xC3, "the object does not have the size of its virtual register";
            PART_ORDER = 0xC4, "the part does not continue the object; send it again from its beginning";
            MALFORMED_WORDS = 0xC5, "the object has words that are not below the modulus";
            PROGRAM_MALFORMED = 0xC6, "the bytes are no secure computing program";
            REGISTER_EMPTY = 0xC7, "a sample, test vector or program that is needed is not loaded";
            KEY_MISSING = 0xC8, "a key that the program needs is not loaded";
            PROGRAM_REFUSED = 0xC9, "the program cannot run, or its result does not fit the command";
            TRIGGER_SPLIT = 0xCA, "a sample that triggers a program, or a column, must come whole in one command";
            NO_ROOM = 0xCB, "the drive has no room for the virtual register";
            PAGING_FAILED = 0xCC, "a page could not be moved to or from the swap area";
            BACKEND_FAILED = 0xCD, "the arithmetic back end failed";
            WRONG_KEY_TAG = 0xCE, "the object belongs to another client key than its key id is in use with";
            NO_PROGRAM = 0xD0, "there is no such program index, or no whole program at it";
            PROGRAM_IN_USE = 0xD1, "the program index is occupied, or its program is active or running";
            PROGRAM_INACTIVE = 0xD2, "the program is not activated";
            NO_RANGE_SET = 0xD3, "there is no memory range set with this identifier";
            TOO_MANY_RANGES = 0xD4, "there is no room for another memory range set, or for so many ranges";
            MEMORY_RANGE = 0xD5, "a memory range is not within a memory namespace, not aligned, or overlaps another one";
        }
    };
}
