"""`dpassay centres`: cluster centres of public text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpassay.base.terminal import say
from dpassay.cli.options import FORMATS, Cluster, Download, Embedder, Json, Quiet, Seed, Workers, show, with_fields
from dpassay.cli.options import progress as progress_of
from dpassay.data.chats import TEXTS, TextOptions


@with_fields
def centres(
    texts: Annotated[Path, typer.Argument(help=f"PUBLIC text, a {FORMATS} file; never private text.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write, .safetensors.")],
    count: Annotated[int, typer.Option(help="Number of centres.")] = 100,
    text: Annotated[str, typer.Option(help="Column of the text.")] = "text",
    embedder: Embedder = "builtin",
    seed: Seed = 0,
    download: Download = False,
    reading: TextOptions = TEXTS,
    workers: Workers = None,
    cluster: Cluster = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Computes cluster centres of public text by k-means, for `parameters: {centres: …}` of a claim."""
    from dpassay.base.errors import InputError, input_errors
    from dpassay.base.outputs import check_output
    from dpassay.base.private_files import write_atomically
    from dpassay.data.records import read_texts
    from dpassay.mechanisms.compute.workers import executor
    from dpassay.mechanisms.embedding.centres import Centres
    from dpassay.mechanisms.embedding.load import BUILTIN, load_embedder

    check_output(output, (texts,))
    if output.is_dir():
        raise InputError(f"{output}: is a folder; name a file with -o")
    if not output.parent.is_dir():
        raise InputError(f"{output}: its folder does not exist; make it first")
    with input_errors():
        public = [content for content, _ in read_texts(texts, text=text, stated=reading)]
        # Texts may share a forward pass, which changes the last bits of their vectors: they are public.
        model = None
        if embedder != BUILTIN:
            model = load_embedder(embedder, texts_at_once=32, one_thread=True, download=download)
    progress = progress_of(json_, quiet)
    with (
        input_errors(),
        executor(workers, cluster, progress) as where,
        progress.stage("Embedding public texts") as step,
    ):
        result = Centres.fit(public, count, embedder=model, seed=seed, executor=where, progress=step)
    with input_errors():
        write_atomically(output, result.to_bytes(), 0o644)
    about = {"centres": result.count, "texts": len(public), "file": str(output)}
    show(about, lambda: say(f"{result.count} centres of {len(public)} public texts in {output}"), json_, quiet)
