#!/bin/sh
# Prints the size table, writes ../build/size.json ({build: {flash, ram, stack, eeprom_years}}) and fails when a budget is exceeded.
# Usage: size.sh PYTHON FOLDER READINGS; FOLDER holds size.elf, size.hex and the variants; EEPROM life is counted over so many readings. Bytes of flash and static RAM are avr-size's.
set -eu
python=$1 folder=$2 readings=$3

row() {
    avr-size "$folder/$1.elf" | awk -v name="$2" 'NR == 2 {printf "%-46s %7d %7d\n", name, $1 + $2, $2 + $3}'
}

printf '%-46s %7s %7s\n' 'ATmega328P' flash RAM
row size 'serial: QoS 2 both ways, journal, keys'
row size-sensor '  with values judged (ow_sensor)'
row size-without-keys 'serial-without-keys'
row size-unsubscribed '  without subscribe'
row size-volatile '  without persistence'
row size-qos0 '  QoS 0 outward only, without subscribe'
row sensor 'sensor example'
row size-lora 'LoRa: QoS 2 both ways, journal, keys, SX1276'
row sensor-lora 'sensor example by radio'

# BUILD FILE FLASH RAM [--radio]: the budgets of a build; the stack's is 400 bytes, the EEPROM's ten years
judge() {
    measured=$(cd .. && "$python" -m hil.boards.measure "${folder#../}/$2.hex" --readings "$readings" ${5-})
    avr-size "$folder/$2.elf" | awk 'NR == 2 {print $1 + $2, $2 + $3}' | "$python" -c '
import json, pathlib, sys
build, measured, budgets = sys.argv[1], json.loads(sys.argv[2]), dict(zip(("flash", "ram", "stack"), map(int, sys.argv[3:])))
flash, ram = map(int, sys.stdin.read().split())
figures = {"flash": flash, "ram": ram, "stack": measured["stack"], "eeprom_years": measured["eeprom_years"]}
file = pathlib.Path("../build/size.json")
told = json.loads(file.read_text()) if file.exists() else {}
file.write_text(json.dumps(told | {build: figures}) + "\n")
print("{0}: stack {stack} bytes at most; the EEPROM lives {eeprom_years} years at a reading a minute (counted over {readings})".format(build, **figures, readings=measured["readings"]))
over = [f"{name} {figures[name]} above {limit}" for name, limit in budgets.items() if figures[name] > limit]
over += ["EEPROM life below 10 years"] if figures["eeprom_years"] < 10 else []
sys.exit(f"{build} is over budget: " + ", ".join(over) if over else 0)' "$1" "$measured" "$3" "$4" 400
}

# PART FILE BASE: the price of a part in flash, at most 600 bytes
price() {
    avr-size "$folder/$2.elf" "$folder/$3.elf" | awk -v part="$1" '
        NR > 1 {flash[NR] = $1 + $2; ram[NR] = $2 + $3}
        END {
            cost = flash[2] - flash[3]
            printf "%s costs %d bytes of flash and %d of RAM\n", part, cost, ram[2] - ram[3]
            if (cost > 600) {print part " costs more than 600 bytes of flash"; exit 1}
        }'
}

rm -f ../build/size.json
judge serial size 13312 750
judge serial-without-keys size-without-keys 11264 700
judge lora size-lora 14336 900 --radio
price 'the sensor layer' size-sensor size
price 'the slot check' size-check size
price 'the slot check by radio' size-lora-check size-lora
price 'answers to commands' size-answers size
price 'answers to commands by radio' size-lora-answers size-lora
avr-size "$folder/size-lora-all.elf" | awk 'NR == 2 {
    print "LoRa with all parts: " $1 + $2 " bytes of flash and " $2 + $3 " of RAM"
    if ($1 + $2 > 16384) {print "LoRa with all parts is larger than 16 kB"; exit 1}
}'
