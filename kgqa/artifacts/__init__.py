"""Typed files of a run or sweep folder. Each type reads its file, checks it, and gives its JSON again."""
