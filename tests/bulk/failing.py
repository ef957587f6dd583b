"""`melforge`, whose first worker that makes the file $FAILS fails at a shard, as with a GPU's fault."""

import os
import runpy
from pathlib import Path

from melforge.common.bulk.shards import ShardSpeaker

if __name__ == "__main__":
    runpy.run_module("melforge", run_name="__main__")
else:  # a process that this one has started
    speak = ShardSpeaker.speak

    def fail_or_speak(self, shard):
        try:
            Path(os.environ["FAILS"]).touch(exist_ok=False)
        except FileExistsError:
            return speak(self, shard)
        raise RuntimeError("an illegal memory access was encountered")

    ShardSpeaker.speak = fail_or_speak
