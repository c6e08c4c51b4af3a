"""The functions that a run and a training call if `tracker=` is set. `conf/tracker` names the classes."""

from kgqa.util.registry import Extra

EXTRA = Extra(
    functions={
        "check_tracker": "kgqa.extras.trackers.tracking:choose_tracker",
        "track_run": "kgqa.extras.trackers.tracking:track_run",
        "track_training": "kgqa.extras.trackers.tracking:track",
    }
)
