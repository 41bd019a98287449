//! Transports: TCP and Unix sockets on epoll or io_uring.

#![deny(unsafe_op_in_unsafe_fn)]
