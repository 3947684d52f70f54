"""A driver with mosquitto_pub -l and mosquitto_sub, which reconnect by themselves."""

import subprocess
import sys

from options import options, say

of = options()
words = ["-h", "127.0.0.1", "-p", str(of.port), "-i", of.id, "-t", of.topic, "-q", str(of.qos)]
words += ["-V", "5" if of.version == 5 else "mqttv311", "-c"]
words += ["-x", "3600"] if of.version == 5 else []
words += ["--cafile", of.ca] if of.tls else []
if of.does == "subscribe":
    command = ["stdbuf", "-oL", "mosquitto_sub", *words, "-d", "-F", "payload %p"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("payload "):
                say(line.removeprefix("payload ").rstrip())
            elif line.startswith("Subscribed (mid"):
                say("ready")
    sys.exit(child.returncode)
lines = "".join(f"{number}\n" for number in range(of.count))
words += ["-m", "0"] if of.count == 1 else ["-l"]
try:
    done = subprocess.run(
        ["mosquitto_pub", *words],
        input=lines,
        capture_output=True,
        text=True,
        timeout=of.within_s,
        check=False,
    )
except subprocess.TimeoutExpired:
    say("not published")
else:
    said = (done.stdout + done.stderr).split("\n")[0].rstrip(".")
    say(f"{said}, exit code {done.returncode}" if said or done.returncode else "published")
