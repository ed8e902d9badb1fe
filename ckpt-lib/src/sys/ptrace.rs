//! `ptrace(2)`, one function per request.
