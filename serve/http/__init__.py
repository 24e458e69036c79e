"""HTTP/1.1 between sockets and typed requests: bounded in time and size, and never waiting for one client alone.

llhttp (by httptools) reads the bytes, one event loop a worker holds every connection, and what may take long runs
elsewhere. A half-sent head or body occupies a few kilobytes until its time is up, and no thread.
"""
