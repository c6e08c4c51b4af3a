"""The formats that `kgqa report --format` adds to its own."""

from kgqa.util.registry import Export, Extra

EXTRA = Extra(
    exports={
        "eee": Export(
            "Every Eval Ever 0.3.0: one record of the scores with their intervals",
            "kgqa.extras.exports.every_eval_ever:write_every_eval_ever",
        ),
        "otlp": Export(
            "one trace per question in OTLP/JSON with OpenInference's names: for Phoenix, MLflow, Langfuse",
            "kgqa.extras.exports.otlp:write_otlp",
        ),
    }
)
