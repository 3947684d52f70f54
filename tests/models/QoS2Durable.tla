---------------------------- MODULE QoS2Durable ----------------------------
(***************************************************************************)
(* One sender, one gateway, its landing place: QoS 2 by Delivery Method B   *)
(* (MQTT 5.0, 4.3.3, non-normative: forward at PUBLISH, keep the packet     *)
(* identifier only). The gateway may crash between any two steps, the       *)
(* connection may break, the store may be restored from an older copy.      *)
(* Identifiers are used again.                                              *)
(*                                                                         *)
(* A board's publications have an identity that lasts to the table; a       *)
(* client's have none (Identity).                                           *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Messages,   \* how many publications the sender makes
    Ids,        \* how many packet identifiers it uses, in turn
    Identity,   \* whether publications have an identity of their own
    Crashes, Breaks, Restores,  \* how often each may happen
    Broken      \* a promise that is broken on purpose, or "nothing"

VARIABLES
    sender,     \* newest message, its identifier, and the step of its exchange; in EEPROM
    connected,
    up, down,   \* packets on the way, in order
    disk,       \* what the gateway has committed: identifiers, rows of the spool, how many landed
    memory,     \* the same with what the next commit will add
    answers,    \* acknowledgements that wait for that commit
    files,      \* the landing place: <<epoch, number, row>>
    epoch,      \* of the batch numbers
    copy,       \* a backup of the store, if one was made
    born,       \* rows made so far; each row is <<message, birth>>
    gone,       \* messages that only a store had that was replaced by an older one
    doubt,      \* messages that were under way then: without an identity they may come twice
    crashes, breaks, restores

vars == <<sender, connected, up, down, disk, memory, answers, files, epoch, copy, born, gone,
          doubt, crashes, breaks, restores>>
network == <<connected, up, down>>
history == <<gone, doubt, crashes, breaks, restores>>

None == [ids |-> {}, rows |-> <<>>, landed |-> 0, made |-> FALSE]
Empty == [ids |-> {}, rows |-> <<>>, landed |-> 0, made |-> TRUE]

Init ==
    /\ sender = [message |-> 0, id |-> 0, step |-> "idle"]
    /\ connected = FALSE /\ up = <<>> /\ down = <<>>
    /\ disk = Empty /\ memory = Empty /\ answers = <<>>
    /\ files = {} /\ epoch = 1 /\ copy = None /\ born = 0
    /\ gone = {} /\ doubt = {} /\ crashes = 0 /\ breaks = 0 /\ restores = 0

Packet(kind, id, message, known) ==
    [kind |-> kind, id |-> id, message |-> message, known |-> known]
    \* message: for the invariants only; a PUBREL or PUBCOMP carries none

(* What the sender has to say in its present step. *)
Said(s) ==
    CASE s.step = "publish" -> <<Packet("PUBLISH", s.id, s.message, TRUE)>>
      [] s.step = "release" -> <<Packet("PUBREL", s.id, s.message, TRUE)>>
      [] OTHER -> <<>>

Say(s) == up' = IF connected THEN up \o Said(s) ELSE up

----------------------------------------------------------------------------
(* The sender. *)

\* firmware/src/ow_journal.c: ow_journal_append; firmware/src/ow_flow.c: publish
Publish ==
    /\ sender.step = "idle" /\ sender.message < Messages
    /\ sender' = [message |-> sender.message + 1, id |-> (sender.id % Ids) + 1, step |-> "publish"]
    /\ Say(sender')
    /\ UNCHANGED <<connected, down, disk, memory, answers, files, epoch, copy, born, history>>

\* firmware/src/ow_flow.c: ow_flow_ack
SenderTakes ==
    /\ down # <<>>
    /\ LET packet == Head(down)
           mine == packet.id = sender.id
       IN  sender' =
             CASE packet.kind = "PUBREC" /\ mine /\ sender.step = "publish" ->
                    [sender EXCEPT !.step = "release"]
               [] packet.kind = "PUBCOMP" /\ mine /\ sender.step = "release" ->
                    \* 0x92: a board publishes again under the same identity
                    IF packet.known \/ ~Identity \/ Broken = "0x92 is done"
                    THEN [sender EXCEPT !.step = "idle"]
                    ELSE [sender EXCEPT !.step = "publish", !.id = (sender.id % Ids) + 1]
               [] OTHER -> sender
    /\ up' = IF sender' # sender THEN up \o Said(sender') ELSE up
    /\ down' = Tail(down)
    /\ UNCHANGED <<connected, disk, memory, answers, files, epoch, copy, born, history>>

----------------------------------------------------------------------------
(* The gateway. *)

Answer(packet) ==
    IF Broken = "acknowledged before the commit"
    THEN /\ down' = down \o <<packet>> /\ UNCHANGED answers
    ELSE /\ answers' = answers \o <<packet>> /\ UNCHANGED down

\* gateway/broker/receive_flow.py: keep, repeat, release
GatewayTakes ==
    /\ up # <<>>
    /\ LET packet == Head(up)
           known == packet.id \in memory.ids
       IN  CASE packet.kind = "PUBLISH" ->
                  /\ IF known
                     THEN UNCHANGED <<memory, born>>
                     ELSE /\ memory' = [memory EXCEPT
                                !.ids = @ \cup {packet.id},
                                !.rows = Append(@, <<packet.message, born + 1>>)]
                          /\ born' = born + 1
                  /\ Answer(Packet("PUBREC", packet.id, packet.message, TRUE))
             [] packet.kind = "PUBREL" ->
                  /\ memory' = [memory EXCEPT !.ids = @ \ {packet.id}]
                  /\ UNCHANGED born
                  /\ Answer(Packet("PUBCOMP", packet.id, packet.message, known))
    /\ up' = Tail(up)
    /\ UNCHANGED <<sender, connected, disk, files, epoch, copy, history>>

\* gateway/store/writer.py: _write
Commit ==
    /\ memory # disk \/ answers # <<>>
    /\ disk' = [memory EXCEPT !.ids =
            IF Broken = "released without a commit" THEN disk.ids \cup memory.ids ELSE @]
    /\ down' = IF connected THEN down \o answers ELSE down
    /\ answers' = <<>>
    /\ UNCHANGED <<sender, connected, up, memory, files, epoch, copy, born, history>>

\* gateway/store/recovery.py: recover
Started(found) ==
    [found EXCEPT !.ids = IF Broken = "identifiers in memory only" THEN {} ELSE @]

Crash ==
    /\ crashes < Crashes
    /\ crashes' = crashes + 1
    /\ memory' = Started(disk) /\ disk' = Started(disk)
    /\ answers' = <<>> /\ connected' = FALSE /\ up' = <<>> /\ down' = <<>>
    /\ UNCHANGED <<sender, files, epoch, copy, born, gone, doubt, breaks, restores>>

----------------------------------------------------------------------------
(* The link. *)

Break ==
    /\ connected /\ breaks < Breaks
    /\ breaks' = breaks + 1
    /\ answers' = <<>> /\ connected' = FALSE /\ up' = <<>> /\ down' = <<>>
    /\ UNCHANGED <<sender, disk, memory, files, epoch, copy, born, gone, doubt, crashes, restores>>

\* firmware/src/ow_flow.c: ow_flow_connect (what is not acknowledged is said again, [MQTT-4.4.0-1];
\* a CONNACK with Session Present 1 waits for the commits before it)
Connect ==
    /\ ~connected /\ memory = disk
    /\ connected' = TRUE
    /\ up' = Said(sender) /\ down' = <<>>
    /\ UNCHANGED <<sender, disk, memory, answers, files, epoch, copy, born, history>>

----------------------------------------------------------------------------
(* The uplink. *)

Here(number) == \E row \in {f[3] : f \in files} : <<epoch, number, row>> \in files

\* gateway/uplink/lander.py: land (a batch of one row, under its number)
Land ==
    /\ disk.landed < Len(disk.rows) /\ ~Here(disk.landed + 1)
    /\ files' = files \cup {<<epoch, disk.landed + 1, disk.rows[disk.landed + 1]>>}
    /\ UNCHANGED <<sender, network, disk, memory, answers, epoch, copy, born, history>>

\* gateway/uplink/spool.py: landed (rows leave the spool when their batch is published)
Delete ==
    /\ disk.landed < Len(disk.rows)
    /\ Here(disk.landed + 1) \/ Broken = "deleted before it landed"
    /\ disk' = [disk EXCEPT !.landed = @ + 1]
    /\ memory' = [memory EXCEPT !.landed = @ + 1]
    /\ UNCHANGED <<sender, network, answers, files, epoch, copy, born, history>>

----------------------------------------------------------------------------
(* An older copy of the store comes back. *)

Landed == {f[3] : f \in files}
Rows(store) == {store.rows[n] : n \in 1..Len(store.rows)}
Waiting(store) == {store.rows[n] : n \in (store.landed + 1)..Len(store.rows)}

\* gateway/store/backup.py: backup
Backup ==
    /\ ~copy.made /\ restores < Restores
    /\ copy' = disk
    /\ UNCHANGED <<sender, network, disk, memory, answers, files, epoch, born, history>>

\* gateway/uplink/epoch.py: _first_not_landed
RECURSIVE FirstNotLanded(_, _)
FirstNotLanded(store, n) ==
    IF n < Len(store.rows) /\ store.rows[n + 1] \in Landed
    THEN FirstNotLanded(store, n + 1) ELSE n

\* gateway/store/backup.py: restore; gateway/store/generation.py: why_other_generation
Restore ==
    /\ copy.made /\ restores < Restores
    /\ LET now == [copy EXCEPT
                !.ids = IF Broken = "identifiers outlive a restore" THEN @ ELSE {},
                !.landed = FirstNotLanded(copy, copy.landed)]
       IN  /\ disk' = now /\ memory' = now
           /\ gone' = gone \cup {row[1] : row \in Rows(disk) \ (Rows(copy) \cup Landed)}
    /\ epoch' = epoch + 1
    /\ doubt' = doubt \cup (IF sender.step = "idle" THEN {} ELSE {sender.message})
    /\ restores' = restores + 1
    /\ answers' = <<>> /\ connected' = FALSE /\ up' = <<>> /\ down' = <<>>
    /\ UNCHANGED <<sender, files, copy, born, crashes, breaks>>

----------------------------------------------------------------------------
Normal == Publish \/ SenderTakes \/ GatewayTakes \/ Commit \/ Connect \/ Land \/ Delete
Next == Normal \/ Crash \/ Break \/ Backup \/ Restore
Spec == Init /\ [][Next]_vars /\ WF_vars(Publish) /\ WF_vars(SenderTakes)
        /\ WF_vars(GatewayTakes) /\ WF_vars(Commit) /\ WF_vars(Connect) /\ WF_vars(Land)
        /\ WF_vars(Delete)

----------------------------------------------------------------------------
Kept(message) == \E row \in Waiting(disk) \cup Landed : row[1] = message

Acknowledged ==
    1..(IF sender.step \in {"release", "idle"} THEN sender.message ELSE sender.message - 1)

(* gateway/ingest/dedup: one row of the table for each identity *)
TableRows(message) ==
    LET all == Cardinality({f \in files : f[3][1] = message})
    IN  IF Identity /\ Broken # "no de-duplication" /\ all > 1 THEN 1 ELSE all

(* An acknowledged message is on disk, or landed. What only a store had that was replaced is gone:
   but not what a board has still to release, for it publishes that again. *)
NothingIsLost ==
    \A message \in Acknowledged :
        Kept(message) \/ message \in gone

NothingIsDoubled ==
    \A message \in 1..sender.message :
        TableRows(message) <= 1 \/ (~Identity /\ message \in doubt)

(* No PUBCOMP on the way for a publication that is nowhere. *)
NothingIsForged ==
    \A n \in 1..Len(down) :
        (down[n].kind = "PUBCOMP" /\ down[n].known) =>
            (Kept(down[n].message) \/ down[n].message \in gone)

(* A board's publication that was under way at a restore comes back. *)
BoardsSayItAgain ==
    Identity => <>[](\A message \in doubt : TableRows(message) = 1)

EverythingArrives ==
    <>[](\A message \in 1..Messages : TableRows(message) >= 1 \/ message \in gone)
=============================================================================
