//! Memory that crosses the boundary: lent by callers, or owned by them.

use std::{
    ffi::{CStr, c_char, c_void},
    ptr, slice,
};

use minos_client::Value;

use crate::failure::Failure;

/// A key that the caller lends: `minos_key` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Key {
    /// Its bytes.
    pub bytes: *const c_void,
    /// Its length in bytes.
    pub length: usize,
}

/// A key and a value that the caller lends: `minos_item` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Item {
    /// The key.
    pub key: Key,
    /// The value's bytes.
    pub value: *const c_void,
    /// The length of the value in bytes.
    pub value_length: usize,
}

/// A value that the caller owns and frees with [`minos_value_free`]: `minos_value` of the header.
#[derive(Debug)]
#[repr(C)]
pub struct OwnedValue {
    /// Its bytes; NULL if there are none.
    pub bytes: *mut u8,
    /// Its length in bytes.
    pub length: usize,
    /// The flags stored with the item.
    pub flags: u32,
    /// The item's CAS unique.
    pub cas: u64,
}

impl OwnedValue {
    pub(crate) const NONE: Self = Self { bytes: ptr::null_mut(), length: 0, flags: 0, cas: 0 };

    /// Passes a value to the caller.
    pub(crate) fn from_value(value: Value) -> Self {
        let Value { bytes, flags, cas } = value;
        if bytes.is_empty() {
            return Self { flags, cas, ..Self::NONE };
        }
        let length = bytes.len();
        let bytes = Box::into_raw(bytes.into_boxed_slice()).cast();
        Self { bytes, length, flags, cas }
    }
}

/// Bytes that the caller lends. If `length` is 0, the pointer is ignored.
///
/// # Safety
/// Otherwise, if it is not NULL, it points to `length` bytes that do not change while they are in use.
pub(crate) unsafe fn bytes<'a>(
    pointer: *const c_void,
    length: usize,
    name: &'static str,
) -> Result<&'a [u8], Failure> {
    // SAFETY: the same contract.
    unsafe { list(pointer.cast(), length, name) }
}

/// Elements that the caller lends. If `length` is 0, the pointer is ignored.
///
/// # Safety
/// Otherwise, if it is not NULL, it points to `length` elements that do not change while they are in use.
pub(crate) unsafe fn list<'a, T>(
    pointer: *const T,
    length: usize,
    name: &'static str,
) -> Result<&'a [T], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() || length > isize::MAX as usize / size_of::<T>() {
        return Err(Failure::Argument(name));
    }
    // SAFETY: the caller's promise, and the length was checked.
    Ok(unsafe { slice::from_raw_parts(pointer, length) })
}

/// A text that the caller lends.
///
/// # Safety
/// If it is not NULL, it is a C string that does not change while it is in use.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &'static str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::Argument(name));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::Argument(name))
}

/// Writes a result to `pointer`, unless it is NULL.
///
/// # Safety
/// If it is not NULL, a `T` may be written to it.
pub(crate) unsafe fn write<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: the caller's promise. The old value is not read.
        unsafe { pointer.write(value) };
    }
}

/// Frees a value. NULL and values without bytes, such as freed ones, are ignored.
///
/// # Safety
/// If it is not NULL, `value` points to a value that a call of this library wrote, or that is all zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_value_free(value: *mut OwnedValue) {
    // SAFETY: the caller's promise.
    let Some(value) = (unsafe { value.as_mut() }) else { return };
    let OwnedValue { bytes, length, .. } = std::mem::replace(value, OwnedValue::NONE);
    if !bytes.is_null() {
        // SAFETY: `from_value` made it from a boxed slice of this length, and it is forgotten now.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(bytes, length)) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_given_back() {
        for bytes in [vec![], vec![1, 2, 3], vec![7; 1 << 20]] {
            let length = bytes.len();
            let mut owned = OwnedValue::from_value(Value { bytes, flags: 1, cas: 2 });
            assert_eq!((owned.length, owned.flags, owned.cas), (length, 1, 2));
            assert_eq!(owned.bytes.is_null(), length == 0);
            for _ in 0..2 {
                // SAFETY: it was made by `from_value`, then it is empty.
                unsafe { minos_value_free(&mut owned) };
                assert!(owned.bytes.is_null() && owned.length == 0);
            }
        }
        // SAFETY: NULL is allowed.
        unsafe { minos_value_free(ptr::null_mut()) };
    }

    #[test]
    fn what_is_missing_is_an_error() {
        // SAFETY: these pointers are not read.
        unsafe {
            assert!(bytes(ptr::null(), 0, "x").is_ok_and(<[u8]>::is_empty));
            assert!(bytes(ptr::null(), 1, "x").is_err());
            assert!(list(ptr::dangling::<u64>(), usize::MAX / 2, "x").is_err());
            assert!(text(ptr::null(), "x").is_err());
            write(ptr::null_mut::<u64>(), 1);
        }
        // SAFETY: it is a C string.
        assert!(unsafe { text(c"\xff".as_ptr(), "x") }.is_err());
    }
}
