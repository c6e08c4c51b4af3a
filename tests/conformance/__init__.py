"""kgqa's classes with the inputs that the authors' released programs got, compared with what these programs did.

The data are in `KGQA_DATA/conformance`. Its README describes every file. The tests are skipped where they are absent.
Each test lists the differences that are intended with their reason, and fails on any other one.
"""
