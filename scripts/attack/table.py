"""Which attacks there are, and how often each is tried at SIZE=1."""

from __future__ import annotations

from scripts.attack import (
    on_archives,
    on_caches,
    on_command_lines,
    on_documents,
    on_folders,
    on_inputs,
    on_kills,
    on_machines,
    on_servers,
    on_several,
    on_terminals,
)
from scripts.attack.trial import Attack

ATTACKS = (
    Attack("data files", on_inputs.data_files, 350),
    Attack("corpora", on_inputs.corpora, 60),
    Attack("predictions", on_inputs.predictions, 120),
    Attack("demonstrations", on_inputs.demonstrations, 80),
    Attack("hostile replies", on_inputs.rules, 50, slow=1.5),
    Attack("documents", on_documents.folders, 150, slow=0.8),
    Attack("archives", on_archives.archives, 80, slow=0.2),
    Attack("run folders", on_folders.runs, 200),
    Attack("sweeps", on_folders.sweeps, 60),
    Attack("triples", on_folders.triples, 100),
    Attack("indexes", on_folders.indexes, 150),
    Attack("caches", on_caches.anything, 150),
    Attack("single bits of caches", on_caches.single_bits, 250),
    Attack("server faults", on_servers.faults, 110, slow=3),
    Attack("kills, scripted engine", on_kills.stages, 60, slow=1.5),
    Attack("kills, counting server", on_kills.served, 40, slow=2.5),
    Attack("processes on one cache", on_several.one_cache, 10, slow=6),
    Attack("processes on one folder", on_several.one_folder, 10, slow=5),
    Attack("a locked cache", on_several.locked, 4, slow=4),
    Attack("full disks", on_machines.full_disks, 40, slow=1.2),
    Attack("limits of files", on_machines.file_limits, 30, slow=1.2),
    Attack("read-only disks", on_machines.read_only, 30, slow=0.6),
    Attack("environments", on_machines.environments, 60, slow=0.6),
    Attack("terminals", on_terminals.terminals, 40, slow=2),
    Attack("outputs", on_terminals.outputs, 15, slow=2),
    Attack("overrides", on_command_lines.overrides, 600),
    Attack("commands", on_command_lines.commands, 300),
)
