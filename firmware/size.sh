#!/bin/sh
# Prints the size table, writes ../build/size.json ({build: {flash, ram, stack, eeprom_years}}) and fails when a budget is exceeded.
# Usage: size.sh PYTHON FOLDER READINGS; FOLDER holds size.elf, size.hex and the variants; EEPROM life is counted over so many readings. Bytes of flash and static RAM are avr-size's.
set -eu
python=$1 folder=$2 readings=$3

row() {
    avr-size "$folder/$1.elf" | awk -v name="$2" 'NR == 2 {printf "%-46s %7d %7d\n", name, $1 + $2, $2 + $3}'
}

printf '%-46s %7s %7s\n' 'ATmega328P' flash RAM
row size 'publish QoS 2, subscribe QoS 2, journal'
row size-unsubscribed '  without subscribe'
row size-volatile '  without persistence'
row size-qos0 '  QoS 0 outward only, without subscribe'
row sensor 'sensor example'

measured=$(cd .. && "$python" -m hil.boards.measure "${folder#../}/size.hex" --readings "$readings")
avr-size "$folder/size.elf" | awk 'NR == 2 {print $1 + $2, $2 + $3}' | "$python" -c '
import json, pathlib, sys
flash, ram = map(int, sys.stdin.read().split())
measured = json.loads(sys.argv[1])
figures = {"flash": flash, "ram": ram, "stack": measured["stack"], "eeprom_years": measured["eeprom_years"]}
pathlib.Path("../build/size.json").write_text(json.dumps({"serial-without-keys": figures}) + "\n")
budgets = {"flash": 11_264, "ram": 700, "stack": 400}
print("stack {stack} bytes at most; the EEPROM lives {eeprom_years} years at a reading a minute (counted over {readings})".format(**figures, readings=measured["readings"]))
over = [f"{name} {figures[name]} above {limit}" for name, limit in budgets.items() if figures[name] > limit]
over += [f"EEPROM life {figures['"'eeprom_years'"']} years below 10"] if figures["eeprom_years"] < 10 else []
sys.exit("over budget: " + ", ".join(over) if over else 0)' "$measured"
