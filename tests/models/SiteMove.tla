----------------------------- MODULE SiteMove -----------------------------
(***************************************************************************)
(* Three gateways of one site and one client, which changes its gateway at  *)
(* the worst moment (gateway/site/README.md says the rules). A gateway may  *)
(* crash between any two steps and goes on with what it had committed; a    *)
(* link may be cut, be silent for any time, lose what is under way, and     *)
(* come back. On a link frames keep their order; two links know no order.   *)
(*                                                                         *)
(* The client publishes at QoS 2 and uses one packet identifier again and   *)
(* again: a session that holds it too long swallows the next publication.   *)
(*                                                                         *)
(* Time is left out. A lease is a fact that ends at some time, and nobody   *)
(* calls a member silent before it has ended (gateway/site/rules/contacts.py). How *)
(* much longer members wait, for one that may be starting say, is left out. *)
(* So is the age of a reply that counts for a newer CONNECT (FRESH_S).      *)
(*                                                                         *)
(* Left out, too: Clean Start, more than one part of a session, a stall of  *)
(* a session on its way, restored stores; a reply to a question that waits  *)
(* for a slow disk or is on its way (it is heard when it is said); a crash  *)
(* between the two commits of a CONNECT. What comes at last is shown for    *)
(* members that call a session back only while nobody asks for it: 4 s are  *)
(* longer than a search.                                                    *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Homes,      \* where the session may be at first
    Start,      \* "one session"; "two sessions" (1 and 2 have a session each, made in silence: they
                \* name one another); "unheard" (2 has made a session while 1, which has the old one,
                \* was silent, and the client has not heard it); "an old no" (1 has a no of 2 and
                \* waits for 3; meanwhile, 2 has made a session without 1)
    Moves,      \* how often the client connects
    Messages,   \* how many publications it makes
    Misses,     \* how often a connection breaks before the client hears its CONNACK
    Crashes, Cuts, Expiries,  \* how often each may happen
    Waiting,    \* whether frames wait at a cut and arrive after it, or are lost
    Patient,    \* whether a session is called back only while no client waits
    Broken      \* a promise that is broken on purpose, or "nothing"

VARIABLES
    disk,       \* by member: its record, as committed
    work,       \* by member: a commit under way, and what is done when it is through
    search,     \* by member: its search for the client
    asked,      \* by member: who has asked for the client since it last decided
    lease,      \* lease[m][n]: m has a lease from n
    owes,       \* pairs <<m, n>>: m has a word for n that must come before a lease
    link,       \* by pair: "up", "cut" (frames wait) or "down"
    wire,       \* wire[m][n]: frames from m to n, in order
    client,
    spool,      \* publications on some disk
    completed,  \* publications that the client has got a PUBCOMP for
    twice,      \* a publication was spooled once more, and nobody had said that it was in doubt
    wrong,      \* the client was told something else than it knows, unmarked
    born,       \* sessions made so far
    moves, misses, crashes, cuts, expiries

members == <<disk, work, search, asked>>
net == <<lease, owes, link, wire>>
told == <<spool, completed, twice>>
counts == <<moves, misses, crashes, cuts, expiries>>
vars == <<members, net, client, told, wrong, born, counts>>

Members == 1..3
Others(m) == Members \ {m}
Pair(m, n) == IF m < n THEN <<m, n>> ELSE <<n, m>>
Pairs == {<<1, 2>>, <<1, 3>>, <<2, 3>>}
Link(m, n) == link[Pair(m, n)]

(* Records: gateway/site/rules/holder.py, Held. received: the publication that the identifier stands for,
   or 0. unheard: the session began in doubt, or ended, and its client may not know. *)
Nothing == [epoch |-> 0, session |-> 0, received |-> 0, given |-> 0, older |-> {}, doubt |-> FALSE,
            unheard |-> FALSE]
Kept(record) ==
    IF record.session = 0 /\ record.older = {} /\ ~record.unheard THEN Nothing ELSE record

\* gateway/site/wiring/unheard.py: look_at (the client has sent something)
Heard(record) ==
    IF record.unheard THEN [record EXCEPT !.unheard = FALSE, !.doubt = FALSE] ELSE record

Replaced == Messages + 1
    \* stands in `received` for: a new session replaces this one (gateway/site/wiring/sessions.py)

\* gateway/site/rules/suspect.py
Doubted(record, names) ==
    IF names \subseteq record.older \/ record.given # 0 THEN [record EXCEPT !.doubt = TRUE]
    ELSE [record EXCEPT !.doubt = TRUE, !.older = @ \cup names, !.epoch = @ + 1,
                        !.unheard = @ \/ record.session = 0]

Idle == [then |-> "nothing", record |-> Nothing, to |-> 0, below |-> 0]
Work(then, record) == [Idle EXCEPT !.then = then, !.record = Kept(record)]

NoReply == [kind |-> "none"]
NoVerdict == [source |-> 0, epoch |-> 0, older |-> {}, doubt |-> FALSE, silent |-> FALSE,
              claimed |-> 0]
NoSearch == [stage |-> "none", waits |-> FALSE, suspects |-> {},
             said |-> [n \in Members |-> NoReply], verdict |-> NoVerdict]

Ask(live) == [kind |-> "ask", live |-> live]
    \* live: a reply to it counts
Take(epoch) == [kind |-> "take", epoch |-> epoch]
Give(epoch, session, received, doubt) ==
    [kind |-> "give", epoch |-> epoch, session |-> session, received |-> received, doubt |-> doubt]
End(record) == [kind |-> "end", below |-> record.epoch, older |-> record.older]
Ended(below, state, epoch) == [kind |-> "ended", below |-> below, state |-> state, epoch |-> epoch]

Alone ==
    /\ \E home \in Homes :
        /\ disk = [m \in Members |->
                IF m = home THEN [Nothing EXCEPT !.session = 1] ELSE Nothing]
        /\ client = [at |-> home, open |-> TRUE, session |-> 1, message |-> 0, step |-> "idle",
                     marked |-> FALSE, doubt |-> FALSE, missed |-> FALSE]
    /\ lease = [m \in Members |-> [n \in Members |-> TRUE]]
    /\ owes = {} /\ born = 1
    /\ link = [pair \in Pairs |-> "up"] /\ search = [m \in Members |-> NoSearch]

(* Both hold an identifier of the client, which has nothing under way: what it publishes is new. *)
Double ==
    /\ \E one, two \in {1, 2} :
        disk = [m \in Members |->
            IF m = 3 THEN Nothing
            ELSE [Nothing EXCEPT !.epoch = IF m = 1 THEN one ELSE two, !.session = m,
                                 !.received = 1, !.older = {3 - m}]]
    /\ client = [at |-> 0, open |-> FALSE, session |-> 0, message |-> 0, step |-> "idle",
                 marked |-> TRUE, doubt |-> FALSE, missed |-> FALSE]
    /\ lease = [m \in Members |-> [n \in Members |-> m = n \/ 3 \in {m, n}]]
    /\ owes = {<<1, 2>>, <<2, 1>>} /\ born = 2
    /\ link = [pair \in Pairs |-> "up"] /\ search = [m \in Members |-> NoSearch]

(* The client knows the session of 1, and may have a publication there that it has to repeat. *)
Unheard ==
    /\ \E message \in 0..Messages :
        /\ disk = [m \in Members |->
                IF m = 1 THEN [Nothing EXCEPT !.session = 1, !.received = message]
                ELSE IF m = 2 THEN [Nothing EXCEPT !.epoch = 1, !.session = 2, !.older = {1},
                                        !.doubt = Broken # "told once", !.unheard = Broken # "told once"]
                ELSE Nothing]
        /\ client = [at |-> 0, open |-> FALSE, session |-> 1, message |-> message,
                     step |-> IF message = 0 THEN "idle" ELSE "publish",
                     marked |-> TRUE, doubt |-> FALSE, missed |-> TRUE]
        /\ spool = 1..message
    /\ lease = [m \in Members |-> [n \in Members |-> m = n \/ 3 \in {m, n}]]
    /\ owes = {<<2, 1>>} /\ born = 2
    /\ link = [pair \in Pairs |-> IF pair = <<1, 2>> THEN "down" ELSE "up"]
    /\ search = [m \in Members |-> NoSearch]

(* The link of 1 and 2 holds everything back. 3 has nothing, and 1 has no link to it. *)
OldNo ==
    /\ disk = [m \in Members |-> IF m # 2 THEN Nothing
            ELSE [Nothing EXCEPT !.epoch = 1, !.session = 1, !.older = {1}]]
    /\ client = [at |-> 2, open |-> TRUE, session |-> 1, message |-> 0, step |-> "idle",
                 marked |-> FALSE, doubt |-> FALSE, missed |-> FALSE]
    /\ lease = [m \in Members |-> [n \in Members |-> m = n \/ 1 \notin {m, n}]]
    /\ owes = {<<2, 1>>} /\ born = 1
    /\ link = [pair \in Pairs |->
            CASE pair = <<1, 2>> -> "cut" [] pair = <<1, 3>> -> "down" [] OTHER -> "up"]
    /\ search = [m \in Members |-> IF m # 1 THEN NoSearch ELSE [NoSearch EXCEPT
            !.stage = "ask", !.waits = TRUE, !.said = [@ EXCEPT ![2] = [kind |-> "no"]]]]

Init ==
    /\ CASE Start = "two sessions" -> Double /\ spool = {}
         [] Start = "unheard" -> Unheard
         [] Start = "an old no" -> OldNo /\ spool = {}
         [] OTHER -> Alone /\ spool = {}
    /\ work = [m \in Members |-> Idle]
    /\ asked = [m \in Members |-> {}]
    /\ wire = [m \in Members |-> [n \in Members |-> <<>>]]
    /\ completed = {} /\ twice = FALSE /\ wrong = FALSE
    /\ moves = 0 /\ misses = 0 /\ crashes = 0 /\ cuts = 0 /\ expiries = 0

----------------------------------------------------------------------------
(* What members know. *)

Memory(m) == IF work[m] # Idle THEN work[m].record ELSE disk[m]
Searches(m) == search[m].stage # "none"

\* gateway/site/rules/trust.py: begin, finish
Works(m) == work[m] # Idle

\* gateway/site/rules/lookup.py: is_deciding
Decides(m) == work[m] # Idle \/ search[m].stage \in {"move", "settle"}

\* gateway/site/rules/trust.py: unsure
Unsure(m) == asked[m] \cup {n \in Others(m) : ~lease[m][n]}

\* gateway/site/rules/member.py: is_newest; gateway/site/rules/trust.py: is_newest
IsNewest(m) ==
    LET held == Memory(m)
    IN  /\ held.session # 0 /\ held.given = 0 /\ ~held.doubt
        /\ Unsure(m) = {} /\ ~Searches(m)

Waits(m) == client.at = m /\ ~client.open

(* The client loses its connection to a member that gives its session away, or ends it. *)
Without(m) == IF client.at = m THEN [client EXCEPT !.at = 0, !.open = FALSE] ELSE client

----------------------------------------------------------------------------
(* Frames. *)

Send(w, m, n, frame) ==
    IF Link(m, n) = "down" THEN w ELSE [w EXCEPT ![m][n] = Append(@, frame)]

(* No reply to a question of m counts any more. (A reply is heard when it is said: it may be out of
   date all the same before m decides.) *)
Forget(w, m) ==
    [a \in Members |-> [b \in Members |->
        IF a = m
        THEN [i \in DOMAIN w[a][b] |->
                IF w[a][b][i].kind = "ask" THEN Ask(FALSE) ELSE w[a][b][i]]
        ELSE w[a][b]]]

(* m asks all, once again: an earlier question that is still under way is left out. *)
AskAll(w, m) ==
    LET forgotten == Forget(w, m)
    IN  [forgotten EXCEPT ![m] = [n \in Members |->
            IF n = m \/ Link(m, n) = "down" THEN <<>>
            ELSE Append(SelectSeq(@[n], LAMBDA frame : frame.kind # "ask"), Ask(TRUE))]]

Again(s) == [s EXCEPT !.stage = "ask", !.said = NoSearch.said, !.verdict = NoVerdict]

----------------------------------------------------------------------------
(* The client. *)

(* A client that has missed a Session Present 0 in doubt hears it again, or that the session is in
   doubt. It may miss one that is true: at one broker, too. *)
Told(present, session, marked) ==
    /\ wrong' = (wrong \/ (/\ ~marked /\ (~client.marked \/ (present /\ client.missed))
                           /\ client.session \notin (IF present THEN {0, session} ELSE {0})))
    /\ \/ /\ client' = [client EXCEPT !.open = TRUE, !.session = session, !.marked = FALSE,
                                       !.missed = FALSE, !.step = IF present THEN @ ELSE "idle",
                                       !.doubt = present /\ (@ \/ marked \/ client.marked)]
          /\ UNCHANGED misses
       \/ /\ misses < Misses /\ misses' = misses + 1
          /\ client' = [client EXCEPT !.at = 0, !.open = FALSE, !.marked = @ \/ marked,
                                       !.missed = @ \/ (marked /\ ~present)]

(* A connection breaks, or ends, and the client comes to another member, or to the same one. There,
   an earlier search goes on. It keeps the replies of members that have not decided alone since. *)
\* gateway/site/rules/lookup.py: want, _refresh
Come(m) ==
    /\ moves < Moves
    /\ ~Waits(m)
    /\ moves' = moves + 1
    /\ client' = [client EXCEPT !.at = m, !.open = FALSE]
    /\ LET old == IF search[m].stage = "ask" /\ search[m].waits /\ Broken # "an old no counts"
                  THEN {n \in Others(m) : ~lease[m][n] /\ search[m].said[n].kind # "none"} ELSE {}
       IN  /\ search' = [search EXCEPT ![m].said =
                    [n \in Members |-> IF n \in old THEN NoReply ELSE @[n]]]
           /\ wire' = [wire EXCEPT ![m] = [n \in Members |->
                    IF n \in old THEN Send(wire, m, n, Ask(TRUE))[m][n] ELSE @[n]]]
    /\ UNCHANGED <<disk, work, asked, lease, owes, link, told, wrong, born, misses, crashes, cuts,
                   expiries>>

\* gateway/broker/receive_flow.py: keep, repeat (with the commit that follows; if its PUBREC is not
\* heard, the connection is gone)
Publish(m, heard) ==
    /\ client.at = m /\ client.open /\ work[m] = Idle
    /\ disk[m].session # 0 /\ disk[m].given = 0
    /\ client.step = "publish" \/ (client.step = "idle" /\ client.message < Messages)
    /\ LET message == client.message + (IF client.step = "idle" THEN 1 ELSE 0)
           now == [client EXCEPT !.message = message, !.doubt = @ /\ client.step # "idle"]
       IN  /\ IF disk[m].received # 0
              THEN UNCHANGED <<disk, spool, twice>>
              ELSE /\ disk' = [disk EXCEPT ![m] = [Heard(@) EXCEPT !.received = message]]
                   /\ spool' = spool \cup {message}
                   /\ twice' = (twice \/ (message \in spool /\ ~client.doubt))
           /\ client' = IF heard THEN [now EXCEPT !.step = "release"]
                        ELSE [now EXCEPT !.step = "publish", !.at = 0, !.open = FALSE]
    /\ UNCHANGED <<work, search, asked, net, completed, wrong, born, counts>>

\* gateway/broker/receive_flow.py: release
Release(m, heard) ==
    /\ client.at = m /\ client.open /\ work[m] = Idle /\ client.step = "release"
    /\ disk[m].session # 0 /\ disk[m].given = 0 /\ disk[m].received # 0
    /\ disk' = [disk EXCEPT ![m].received = 0]
    /\ IF heard
       THEN /\ client' = [client EXCEPT !.step = "idle"]
            /\ completed' = completed \cup {client.message}
       ELSE client' = [client EXCEPT !.at = 0, !.open = FALSE] /\ UNCHANGED completed
    /\ UNCHANGED <<work, search, asked, net, spool, twice, wrong, born, counts>>

\* gateway/site/rules/releasing.py: want, _on_reply; gateway/site/rules/replies.py: _release (a member that has
\* the identifier releases it in one commit)
ReleaseElsewhere(m, n) ==
    /\ client.at = m /\ client.open /\ work[m] = Idle /\ client.step = "release"
    /\ disk[m].session # 0 /\ disk[m].given = 0 /\ disk[m].received = 0
    /\ Link(m, n) = "up" /\ ~Decides(n)
    /\ disk[n].session # 0 /\ disk[n].given = 0 /\ disk[n].received # 0 /\ m \notin disk[n].older
    /\ disk' = [disk EXCEPT ![n].received = 0]
    /\ client' = [client EXCEPT !.step = "idle"] /\ completed' = completed \cup {client.message}
    /\ UNCHANGED <<work, search, asked, net, spool, twice, wrong, born, counts>>

\* gateway/site/rules/releasing.py: _finish (nobody has it, or who has it is silent: 0x92)
ReleaseUnknown(m) ==
    /\ client.at = m /\ client.open /\ work[m] = Idle /\ client.step = "release"
    /\ disk[m].session # 0 /\ disk[m].given = 0 /\ disk[m].received = 0
    /\ client' = [client EXCEPT !.step = "idle"]
    /\ UNCHANGED <<members, net, told, wrong, born, counts>>

\* gateway/broker/broker.py: end_session (of a client that is away: Session Expiry Interval)
Expire(m) ==
    /\ expiries < Expiries
    /\ client.at # m /\ work[m] = Idle /\ ~Searches(m)
    /\ disk[m].session # 0 /\ disk[m].given = 0
    /\ expiries' = expiries + 1
    /\ disk' = [disk EXCEPT ![m] = Kept([@ EXCEPT !.session = 0, !.received = 0,
                                                  !.doubt = @ /\ disk[m].unheard])]
    /\ client' = IF client.session = disk[m].session
                 THEN [client EXCEPT !.session = 0, !.step = "idle"] ELSE client
    /\ UNCHANGED <<work, search, asked, net, told, wrong, born, moves, misses, crashes, cuts>>

----------------------------------------------------------------------------
(* Asking. *)

\* gateway/site/rules/member.py: is_newest (rule 1: no word to anybody)
Resume(m) ==
    /\ Waits(m) /\ work[m] = Idle /\ IsNewest(m)
    /\ Told(TRUE, disk[m].session, FALSE)
    /\ UNCHANGED <<members, net, told, born, moves, crashes, cuts, expiries>>

Begin(m, waits) ==
    /\ search' = [search EXCEPT ![m] =
            [NoSearch EXCEPT !.stage = "ask", !.waits = waits,
                             !.suspects = asked[m] \cup search[m].suspects]]
    /\ asked' = [asked EXCEPT ![m] = {}]
    /\ wire' = AskAll(wire, m)

\* gateway/site/rules/lookup.py: want, _begin, _ask_all
Want(m) ==
    /\ Waits(m) /\ work[m] = Idle /\ ~IsNewest(m)
    /\ search[m].stage = "none" \/ (search[m].stage = "ask" /\ ~search[m].waits)
    /\ Begin(m, TRUE)
    /\ UNCHANGED <<disk, work, lease, owes, link, client, told, wrong, born, counts>>

\* gateway/site/rules/outbound_moves.py: _recall; gateway/site/rules/lookup.py: recall
Recall(m) ==
    /\ work[m] = Idle /\ ~Searches(m) /\ disk[m].given # 0
    /\ ~Patient \/ Broken = "called back at once" \/ ~\E n \in Members : Waits(n)
    /\ \A n \in Others(m) : Link(m, n) = "up"
    /\ Begin(m, FALSE)
    /\ UNCHANGED <<disk, work, lease, owes, link, client, told, wrong, born, counts>>

(* m is busy: n asks again. After its second it does not: m is silent. That may be when a session is
   long on its way, over a link that is cut. *)
\* gateway/site/rules/lookup.py: _on_reply
Busy(m, n, rest, again) ==
    IF ~search[n].waits
    THEN search' = [search EXCEPT ![n] = NoSearch] /\ wire' = Forget(rest, n)
    ELSE \/ /\ ~again \/ rest[n][m] # <<>>
            /\ wire' = Send(rest, n, m, Ask(TRUE)) /\ UNCHANGED search
         \/ /\ \E pair \in Pairs : link[pair] = "cut"
            /\ search' = [search EXCEPT ![n].said[m] = [kind |-> "late"]]
            /\ wire' = rest

\* gateway/site/rules/lookup.py: yields; gateway/site/rules/replies.py: _reply (gone: m knows that the client
\* which waited has gone)
TakeAsk(m, n, frame, rest, gone) ==
    LET recall == search[m].stage = "ask" /\ (~search[m].waits \/ gone)
        after == search[m].stage = "ask" /\ search[m].waits /\ m > n
        yields == work[m] = Idle /\ (~Searches(m) \/ recall \/ after)
        held == disk[m]
        forgets == ~yields /\ Broken = "no, while it moves"
        marks == IF (~yields \/ held # Nothing) /\ ~forgets THEN {n} ELSE {}
        now == asked[m] \cup marks
                \cup (IF yields /\ recall THEN search[m].suspects ELSE {})
        no == [kind |-> "no"]
        reply == IF ~yields
                 THEN IF forgets THEN no ELSE [kind |-> "busy"]
                 ELSE IF held = Nothing THEN no
                 ELSE [kind |-> "claim", epoch |-> held.epoch, session |-> held.session # 0,
                       older |-> held.older, given |-> held.given, doubt |-> held.doubt]
        mine == search[m].stage # "none" /\ yields
        hears == frame.live /\ search[n].stage = "ask"
        heard == IF hears /\ reply.kind # "busy"
                 THEN [search EXCEPT ![n].said[m] = reply] ELSE search
        gives_up == hears /\ reply.kind = "busy" /\ ~search[n].waits
    IN  /\ asked' = [asked EXCEPT
                ![m] = now, ![n] = IF gives_up THEN @ \cup search[n].suspects ELSE @]
        /\ IF hears /\ reply.kind = "busy"
           THEN Busy(m, n, rest, marks \subseteq asked[m])
           ELSE /\ search' = IF ~mine THEN heard
                             ELSE [heard EXCEPT ![m] = IF recall THEN NoSearch ELSE Again(@)]
                /\ wire' = IF ~mine THEN rest
                           ELSE IF recall THEN Forget(rest, m) ELSE AskAll(rest, m)
        /\ UNCHANGED <<disk, work, client>>

\* gateway/site/rules/lookup.py: _abandon (a search ends without a decision)
Abandon(m, w) ==
    /\ search' = [search EXCEPT ![m] = NoSearch]
    /\ asked' = [asked EXCEPT ![m] = @ \cup search[m].suspects]
    /\ wire' = Forget(w, m)

----------------------------------------------------------------------------
(* Deciding. *)

\* gateway/site/rules/search.py: supersedes
Supersedes(claims, one, other) ==
    /\ other \in claims[one].older
    /\ one \notin claims[other].older \/ claims[other].given = one

Best(claims, among) ==
    CHOOSE one \in among : \A other \in among :
        \/ claims[other].epoch < claims[one].epoch
        \/ claims[other].epoch = claims[one].epoch /\ other <= one

\* gateway/site/rules/search.py: decide
Verdict(me, claims, silent) ==
    LET all == DOMAIN claims
        older == ((IF Broken = "who was silent is forgotten" THEN {} ELSE silent) \cup all) \ {me}
        highest == CHOOSE e \in {claims[n].epoch : n \in all} : \A n \in all : claims[n].epoch <= e
        first == {one \in all : ~\E other \in all : Supersedes(claims, other, one)}
        standing == IF first = {} THEN all ELSE first
        source == Best(claims, standing)
        best == claims[source]
        ambiguous == first = {} \/ \E one \in all :
                        /\ source \in claims[one].older /\ one \in best.older
                        /\ claims[one].given # source
        better == (IF source = me THEN best.unsure ELSE silent) \cup
                    (IF best.given = 0 THEN {} ELSE {best.given})
    IN  IF all = {}
        THEN [source |-> 0, epoch |-> IF silent = {} THEN 0 ELSE 1, older |-> older,
              doubt |-> silent # {}, silent |-> silent # {}, claimed |-> 0]
        ELSE IF ~best.session
        THEN [source |-> 0, epoch |-> highest + 1, older |-> older,
              doubt |-> silent # {} \/ ambiguous \/ best.doubt,
              silent |-> silent # {}, claimed |-> 0]
        ELSE [source |-> source, epoch |-> highest + 1, older |-> older,
              doubt |-> ambiguous \/ best.doubt \/ silent \cap better # {},
              silent |-> silent # {}, claimed |-> best.epoch]

\* gateway/site/rules/lookup.py: _stands
Stands(m, verdict) == verdict.older = {} /\ disk[m].given = 0

(* What the broker does with an outcome: one more commit, and the CONNACK. *)
\* gateway/site/wiring/local_member.py: _placed, _begin_again
Outcome(m, record, verdict) ==
    LET none == verdict.source = 0
        new == none \/ (verdict.doubt /\ (record.received # 0 \/ record.unheard))
        session == IF new THEN born + 1 ELSE record.session
        unheard == new /\ verdict.doubt /\ Broken # "told once"
    IN  IF ~Waits(m)
        THEN /\ disk' = [disk EXCEPT ![m] = record]
             /\ client' = IF none /\ verdict.doubt THEN [client EXCEPT !.marked = TRUE] ELSE client
             /\ UNCHANGED <<born, wrong, misses>>
        ELSE /\ disk' = [disk EXCEPT ![m] = [record EXCEPT
                    !.epoch = IF record = Nothing THEN verdict.epoch ELSE @,
                    !.session = session, !.received = IF new THEN 0 ELSE @,
                    !.given = 0, !.doubt = unheard, !.unheard = unheard]]
             /\ born' = IF new THEN born + 1 ELSE born
             /\ Told(~new, session, verdict.silent \/ verdict.doubt)

(* m may call n silent. *)
IsSilent(m, n) ==
    \/ search[m].said[n].kind = "late"
    \/ /\ search[m].said[n].kind = "none" /\ Link(m, n) # "up"
       /\ ~lease[n][m] \/ Broken = "no lease is waited for"

\* gateway/site/rules/lookup.py: _look, _decide, _claim, _settled;
\* gateway/site/rules/inbound_moves.py: claim
Decide(m) ==
    /\ search[m].stage = "ask" /\ work[m] = Idle
    /\ \A n \in Others(m) : search[m].said[n].kind \in {"no", "claim"} \/ IsSilent(m, n)
    /\ LET own == disk[m]
           said == search[m].said
           silent == {n \in Others(m) : said[n].kind \in {"none", "late"}}
           mine == [kind |-> "claim", epoch |-> own.epoch, session |-> own.session # 0,
                    older |-> own.older, given |-> own.given, doubt |-> own.doubt,
                    unsure |-> Unsure(m) \cup search[m].suspects]
           who == {n \in Others(m) : said[n].kind = "claim"}
                    \cup (IF own = Nothing THEN {} ELSE {m})
           claims == [n \in who |-> IF n = m THEN mine ELSE said[n]]
           verdict == Verdict(m, claims, IF Broken = "silence is a no" THEN {} ELSE silent)
           record == [own EXCEPT !.epoch = verdict.epoch, !.older = verdict.older, !.given = 0,
                                 !.doubt = @ \/ verdict.doubt,
                                 !.unheard = @ \/ (own.session = 0 /\ verdict.doubt)]
           elsewhere == verdict.source \notin {0, m} \cup own.older /\ silent = {} /\ own # Nothing
       IN  IF search[m].waits /\ ~Waits(m)
           THEN Abandon(m, wire) /\ UNCHANGED <<disk, work, born, client, wrong, misses>>
           ELSE IF /\ ~search[m].waits
                   /\ silent # {} \/ verdict.source # m
           THEN /\ search' = [search EXCEPT ![m] = NoSearch]
                /\ asked' = [asked EXCEPT ![m] =
                        IF elsewhere THEN {} ELSE @ \cup search[m].suspects]
                /\ wire' = Forget(wire, m)
                /\ work' = IF elsewhere THEN [work EXCEPT ![m] = Work("gone", Nothing)] ELSE work
                /\ UNCHANGED <<disk, born, client, wrong, misses>>
           ELSE IF verdict.source \in {0, m} /\ Stands(m, verdict)
           THEN /\ search' = [search EXCEPT ![m] = NoSearch]
                /\ wire' = Forget(wire, m)
                /\ Outcome(m, own, [verdict EXCEPT !.epoch =
                        IF own = Nothing THEN @ ELSE own.epoch])
                /\ UNCHANGED <<asked, work>>
           ELSE IF verdict.source \in {0, m}
           THEN /\ search' = [search EXCEPT ![m] = [NoSearch EXCEPT
                        !.stage = "settle", !.waits = search[m].waits, !.verdict = verdict]]
                /\ work' = [work EXCEPT ![m] = Work("settle", record)]
                /\ wire' = Forget(wire, m)
                /\ UNCHANGED <<disk, asked, born, client, wrong, misses>>
           ELSE /\ search' = [search EXCEPT ![m] = [NoSearch EXCEPT
                        !.stage = "move", !.waits = search[m].waits,
                        !.suspects = search[m].suspects, !.verdict = verdict]]
                /\ IF verdict.source \in own.older
                   THEN /\ work' = [work EXCEPT ![m] =
                                [Work("doubt", Doubted(own, claims[verdict.source].older \ {m}))
                                    EXCEPT !.to = verdict.source, !.below = verdict.claimed]]
                        /\ wire' = Forget(wire, m)
                   ELSE /\ wire' = Send(Forget(wire, m), m, verdict.source, Take(verdict.claimed))
                        /\ UNCHANGED work
                /\ UNCHANGED <<disk, asked, born, client, wrong, misses>>
    /\ UNCHANGED <<lease, owes, link, told, moves, crashes, cuts, expiries>>

----------------------------------------------------------------------------
(* Moving. *)

\* gateway/site/rules/outbound_moves.py: on_take, _record_for, _give
TakeTake(m, n, frame, rest) ==
    LET held == disk[m]
        may == /\ held.session # 0 /\ held.epoch = frame.epoch /\ ~Decides(m)
               /\ held.given = n \/ n \in asked[m]
        given == Give(frame.epoch, held.session, held.received, held.doubt)
    IN  IF ~may
        THEN /\ wire' = Send(rest, m, n, Give(frame.epoch, 0, 0, FALSE))
             /\ UNCHANGED <<disk, work, search, asked, client>>
        ELSE /\ asked' = [asked EXCEPT ![m] = {}]
             /\ IF held.given = n
                THEN wire' = Send(rest, m, n, given) /\ UNCHANGED <<work, client>>
                ELSE /\ work' = [work EXCEPT ![m] =
                            [Work("give", [held EXCEPT !.given = n,
                                !.received = IF held.unheard THEN Replaced ELSE @])
                                EXCEPT !.to = n]]
                     /\ client' = Without(m)
                     /\ wire' = rest
             /\ UNCHANGED <<disk, search>>

\* gateway/site/rules/inbound_moves.py: on_give, _on_part; gateway/site/rules/lookup.py: arrived, lost
TakeGive(m, n, frame, rest) ==
    LET verdict == search[m].verdict
        mine == search[m].stage = "move" /\ verdict.source = n /\ verdict.claimed = frame.epoch
        record == [epoch |-> verdict.epoch, session |-> frame.session,
                   received |-> IF Broken = "identifiers stay behind" THEN 0 ELSE frame.received,
                   given |-> 0, older |-> verdict.older,
                   doubt |-> verdict.doubt \/ frame.doubt, unheard |-> FALSE]
    IN  IF ~mine
        THEN wire' = rest /\ UNCHANGED <<search, work>>
        ELSE IF frame.session = 0
        THEN /\ search' = [search EXCEPT ![m] = Again(@)]
             /\ wire' = AskAll(rest, m) /\ UNCHANGED work
        ELSE /\ search' = [search EXCEPT ![m].stage = "settle", ![m].suspects = {},
                                ![m].verdict.doubt = @ \/ frame.doubt]
             /\ work' = [work EXCEPT ![m] = Work("settle", record)]
             /\ wire' = rest

----------------------------------------------------------------------------
(* Ending. *)

\* gateway/site/rules/ending.py: tell, _say
SayEnd(m, n) ==
    /\ n \in disk[m].older /\ ~Works(m) /\ ~Searches(m) /\ Link(m, n) = "up"
    /\ ~\E i \in DOMAIN wire[m][n] : wire[m][n][i].kind = "end"
    /\ ~\E i \in DOMAIN wire[n][m] : wire[n][m][i].kind = "ended"
    /\ ~(work[n].then \in {"end", "mistrust"} /\ work[n].to = m)
    /\ wire' = Send(wire, m, n, End(disk[m]))
    /\ owes' = owes \ {<<m, n>>}
    /\ UNCHANGED <<members, lease, link, client, told, wrong, born, counts>>

\* gateway/site/rules/ending.py: _end, _judge
TakeEnd(m, n, frame, rest) ==
    LET held == disk[m]
        below == frame.below
        weaker == below > held.epoch \/ (below = held.epoch /\ n > m)
        state == IF n \in held.older /\ held.given # n
                 THEN IF ~weaker /\ held.given = 0 THEN "stays"
                      ELSE IF weaker /\ Broken = "over before the doubt" THEN "done" ELSE "busy"
                 ELSE IF held.epoch < below THEN "done" ELSE "held"
        reply(what, epoch) ==
            wire' = Send(rest, m, n, Ended(below, what, epoch))
    IN  IF Decides(m) \/ Searches(m)
        THEN /\ asked' = [asked EXCEPT ![m] = @ \cup {n}]
             /\ reply("busy", 0) /\ UNCHANGED <<work, client>>
        ELSE IF held = Nothing
        THEN reply("done", 0) /\ UNCHANGED <<asked, work, client>>
        ELSE IF state = "done"
        THEN /\ work' = [work EXCEPT ![m] = [Work("end", Nothing) EXCEPT !.to = n, !.below = below]]
             /\ client' = Without(m)
             /\ wire' = rest
             /\ UNCHANGED asked
        ELSE IF state = "stays"
        THEN /\ work' = [work EXCEPT ![m] =
                    [Work("mistrust", Doubted(held, frame.older \ {m}))
                        EXCEPT !.to = n, !.below = below]]
             /\ client' = [Without(m) EXCEPT !.marked = TRUE]
             /\ wire' = rest
             /\ asked' = [asked EXCEPT ![m] = @ \cup {n}]
        ELSE /\ asked' = [asked EXCEPT ![m] = @ \cup {n}]
             /\ reply(state, held.epoch) /\ UNCHANGED <<work, client>>

\* gateway/site/rules/ending.py: _on_ended, _give_way, _raised
TakeEnded(m, n, frame, rest) ==
    LET held == disk[m]
        kept == Kept([held EXCEPT !.older = @ \ {n}])
    IN  /\ wire' = rest
        /\ IF n \notin held.older \/ work[m] # Idle \/ Searches(m) \/ held.epoch # frame.below
                \/ frame.state = "busy"
           THEN UNCHANGED <<disk, work, client>>
           ELSE IF frame.state = "done"
           THEN disk' = [disk EXCEPT ![m] = kept] /\ UNCHANGED <<work, client>>
           ELSE IF frame.state = "stays"
           THEN /\ work' = [work EXCEPT ![m] = Work("give way", Nothing)]
                /\ client' = Without(m)
                /\ UNCHANGED disk
           ELSE IF held.given = 0
           THEN /\ work' = [work EXCEPT ![m] =
                        Work("raise", [held EXCEPT !.epoch = frame.epoch + 1])]
                /\ UNCHANGED <<disk, client>>
           ELSE UNCHANGED <<disk, work, client>>

----------------------------------------------------------------------------
\* gateway/site/rules/member.py: received
Receive(m, n) ==
    /\ wire[n][m] # <<>> /\ Link(m, n) = "up"
    /\ LET frame == Head(wire[n][m])
           rest == [wire EXCEPT ![n][m] = Tail(@)]
       IN  CASE frame.kind = "ask" ->
                    \E gone \in {FALSE, search[m].waits /\ ~Waits(m)} :
                        TakeAsk(m, n, frame, rest, gone)
             [] frame.kind = "take" -> TakeTake(m, n, frame, rest)
             [] frame.kind = "give" ->
                    TakeGive(m, n, frame, rest) /\ UNCHANGED <<disk, asked, client>>
             [] frame.kind = "end" ->
                    TakeEnd(m, n, frame, rest) /\ UNCHANGED <<disk, search>>
             [] frame.kind = "ended" ->
                    TakeEnded(m, n, frame, rest) /\ UNCHANGED <<search, asked>>
    /\ UNCHANGED <<lease, owes, link, told, wrong, born, counts>>

\* gateway/store/writer.py: _write; gateway/site/rules/lookup.py: _on_disk;
\* gateway/site/rules/outbound_moves.py: _exported;
\* gateway/site/rules/ending.py: _ended, _stay; gateway/site/rules/lookup.py: doubted
Commit(m) ==
    /\ work[m] # Idle
    /\ LET done == work[m]
           record == done.record
           verdict == search[m].verdict
       IN  /\ work' = [work EXCEPT ![m] = Idle]
           /\ IF done.then = "settle" THEN Outcome(m, record, verdict)
              ELSE disk' = [disk EXCEPT ![m] = record] /\ UNCHANGED <<client, wrong, born, misses>>
           /\ CASE done.then = "settle" ->
                    search' = [search EXCEPT ![m] = NoSearch] /\ UNCHANGED <<wire, asked>>
                [] done.then = "give" ->
                    /\ wire' = Send(wire, m, done.to,
                                     Give(record.epoch, record.session, record.received,
                                          record.doubt))
                    /\ UNCHANGED <<search, asked>>
                [] done.then = "end" ->
                    /\ asked' = [asked EXCEPT ![m] = {}]
                    /\ wire' = Send(wire, m, done.to, Ended(done.below, "done", 0))
                    /\ UNCHANGED search
                [] done.then = "mistrust" ->
                    /\ wire' = Send(wire, m, done.to, Ended(done.below, "stays", record.epoch))
                    /\ UNCHANGED <<search, asked>>
                [] done.then = "doubt" ->
                    \* a link that has broken meanwhile has made another search of it
                    /\ wire' = IF search[m].stage = "move"
                               THEN Send(wire, m, done.to, Take(done.below)) ELSE wire
                    /\ UNCHANGED <<search, asked>>
                [] done.then = "give way" ->
                    asked' = [asked EXCEPT ![m] = {}] /\ UNCHANGED <<search, wire>>
                [] OTHER -> UNCHANGED <<search, asked, wire>>
    /\ UNCHANGED <<lease, owes, link, told, moves, crashes, cuts, expiries>>

----------------------------------------------------------------------------
(* Links, leases, power cuts. *)

(* What m does when its link to n is gone. *)
\* gateway/site/rules/lookup.py: link_ended, lost; gateway/site/rules/inbound_moves.py: link_ended
Left(s, n) ==
    IF s.stage = "ask" /\ s.said[n].kind \in {"claim", "no"} THEN [s EXCEPT !.said[n] = NoReply]
    ELSE IF s.stage = "move" /\ s.verdict.source = n THEN Again(s)
    ELSE s

Lost(s, n) == s.stage = "move" /\ s.verdict.source = n

(* Frames of links that are down are lost. The questions of those whose session is lost on its way
   go to the others. *)
Asked(w, l, losers) ==
    [a \in Members |-> [b \in Members |->
        IF a = b \/ l[Pair(a, b)] = "down" THEN <<>>
        ELSE LET kept == SelectSeq(w[a][b], LAMBDA frame :
                            ~(frame.kind = "ask" /\ a \in losers))
             IN  IF a \in losers THEN Append(kept, Ask(TRUE)) ELSE kept]]

\* gateway/site/rules/member.py: link_ended (leases end later, each at its time)
Cut(pair) ==
    /\ cuts < Cuts /\ link[pair] = "up"
    /\ cuts' = cuts + 1
    /\ LET m == pair[1]
           n == pair[2]
           losers == {a \in {m, n} : Lost(search[a], IF a = m THEN n ELSE m)}
       IN  IF Waiting
           THEN link' = [link EXCEPT ![pair] = "cut"] /\ UNCHANGED <<search, wire>>
           ELSE /\ link' = [link EXCEPT ![pair] = "down"]
                /\ search' = [search EXCEPT ![m] = Left(@, n), ![n] = Left(@, m)]
                /\ wire' = Asked(wire, link', losers)
    /\ UNCHANGED <<disk, work, asked, lease, owes, client, told, wrong, born, moves, misses,
                   crashes, expiries>>

Heal(pair) ==
    /\ link[pair] = "cut"
    /\ link' = [link EXCEPT ![pair] = "up"]
    /\ UNCHANGED <<members, lease, owes, wire, client, told, wrong, born, counts>>

(* What m says first on a new link. *)
\* gateway/site/rules/lookup.py: joined; gateway/site/rules/ending.py: joined
First(m, n) ==
    (IF Searches(m) THEN <<Ask(search[m].stage = "ask")>> ELSE <<>>)
    \o (IF n \in disk[m].older /\ ~Works(m) /\ ~Searches(m)
        THEN <<End(disk[m])>> ELSE <<>>)

Owes(m, n) == n \in disk[m].older /\ (Works(m) \/ Searches(m))

Joined(s, n) == IF s.stage = "ask" THEN [s EXCEPT !.said[n] = NoReply] ELSE s

\* gateway/site/rules/member.py: joined; gateway/site/rules/contacts.py: joined
Join(pair) ==
    /\ link[pair] = "down"
    /\ LET m == pair[1]
           n == pair[2]
       IN  /\ link' = [link EXCEPT ![pair] = "up"]
           /\ wire' = [wire EXCEPT ![m][n] = First(m, n), ![n][m] = First(n, m)]
           /\ search' = [search EXCEPT ![m] = Joined(@, n), ![n] = Joined(@, m)]
           /\ lease' = [lease EXCEPT ![m][n] = FALSE, ![n][m] = FALSE]
           /\ owes' = (owes \ {<<m, n>>, <<n, m>>})
                        \cup {p \in {<<m, n>>, <<n, m>>} : Owes(p[1], p[2])}
    /\ UNCHANGED <<disk, work, asked, client, told, wrong, born, counts>>

\* gateway/site/rules/contacts.py: on_beat (a beat comes after what was said before it)
Grant(m, n) ==
    /\ ~lease[m][n] /\ Link(m, n) = "up" /\ Memory(m).session # 0
    /\ \/ Broken = "a lease before the word"
       \/ /\ ~\E i \in DOMAIN wire[n][m] : wire[n][m][i].kind \in {"ask", "end"}
          /\ <<n, m>> \notin owes \/ m \notin Memory(n).older
    /\ lease' = [lease EXCEPT ![m][n] = TRUE]
    /\ UNCHANGED <<members, owes, link, wire, client, told, wrong, born, counts>>

\* gateway/site/rules/contacts.py: link_ended (or its time is over)
LeaseEnds(m, n) ==
    /\ lease[m][n] /\ Link(m, n) # "up"
    /\ Waits(m) \/ \E o \in Members : Searches(o)
    /\ lease' = [lease EXCEPT ![m][n] = FALSE]
    /\ UNCHANGED <<members, owes, link, wire, client, told, wrong, born, counts>>

\* A power cut, and a start with what is on disk.
Crash(m) ==
    /\ crashes < Crashes
    /\ crashes' = crashes + 1
    /\ LET losers == {a \in Others(m) : Lost(search[a], m)}
       IN  /\ link' = [pair \in Pairs |-> IF m \in {pair[1], pair[2]} THEN "down" ELSE link[pair]]
           /\ search' = [a \in Members |-> IF a = m THEN NoSearch ELSE Left(search[a], m)]
           /\ wire' = Asked(wire, link', losers)
    /\ work' = [work EXCEPT ![m] = Idle]
    /\ asked' = [asked EXCEPT ![m] = {}]
    /\ lease' = [lease EXCEPT ![m] = [n \in Members |-> n = m]]
    /\ client' = Without(m)
    /\ owes' = {p \in owes : m \notin {p[1], p[2]}}
    /\ UNCHANGED <<disk, told, wrong, born, moves, misses, cuts, expiries>>

----------------------------------------------------------------------------
Site == \E m \in Members :
    \/ Commit(m) \/ Want(m) \/ Resume(m) \/ Recall(m) \/ Decide(m)
    \/ \E n \in Others(m) : Receive(m, n) \/ SayEnd(m, n) \/ Grant(m, n) \/ LeaseEnds(m, n)
Fate ==
    \/ \E pair \in Pairs : Cut(pair) \/ Heal(pair) \/ Join(pair)
    \/ \E m \in Members : Crash(m) \/ Expire(m)
Client == \E m \in Members :
    \/ Come(m) \/ Release(m, TRUE) \/ Release(m, FALSE) \/ Publish(m, TRUE) \/ Publish(m, FALSE)
    \/ ReleaseUnknown(m) \/ \E n \in Others(m) : ReleaseElsewhere(m, n)

Next == Site \/ Fate \/ Client

(* What can be done is done at last; faults and clients do as they like. *)
Fair ==
    /\ \A m \in Members :
        /\ WF_vars(Commit(m)) /\ WF_vars(Want(m)) /\ WF_vars(Resume(m)) /\ WF_vars(Recall(m))
        /\ WF_vars(Decide(m))
        /\ \A n \in Others(m) :
            /\ WF_vars(Receive(m, n)) /\ WF_vars(SayEnd(m, n)) /\ WF_vars(Grant(m, n))
            /\ WF_vars(LeaseEnds(m, n))
    /\ \A pair \in Pairs : WF_vars(Heal(pair)) /\ WF_vars(Join(pair))

Spec == Init /\ [][Next]_vars /\ Fair

----------------------------------------------------------------------------
(* An acknowledged publication is on disk. *)
NothingIsLost == client.step = "release" => client.message \in spool

(* No identifier that stands for an earlier publication waits where the client goes on: it
   would take the next one for a repetition. *)
NothingIsSwallowed ==
    \A m \in Members :
        LET here == client.at = m /\ client.open /\ disk[m].session # 0 /\ disk[m].given = 0
        IN  (here /\ client.step = "idle") => disk[m].received = 0

(* A publication comes again in its session, and is known there; or the client was told that its
   session was in doubt. *)
NothingIsDoubled == ~twice

NothingIsForged == completed \subseteq spool

OneIsSure == Cardinality({m \in Members : IsNewest(m)}) <= 1

(* Session Present is as the client knows it, or the answer was marked. *)
NoSessionIsLost == ~wrong

(* No other member has a newer session that is in no doubt. *)
TheClientHasTheNewest ==
    \A m, n \in Members :
        LET here == client.at = m /\ client.open /\ disk[m].session # 0 /\ disk[m].given = 0
            newer == disk[n].session # 0 /\ ~disk[n].doubt /\ m \in disk[n].older
        IN  (m # n /\ here /\ newer) => n \in disk[m].older

(* Of two sessions at first, the one that is left is in doubt until the client comes. *)
TheLastIsInDoubt ==
    (Start = "two sessions" /\ moves = 0) =>
        \A m \in Members :
            \/ disk[m].session = 0 \/ disk[m].doubt
            \/ \E n \in Others(m) : disk[n].session # 0

(* All are linked, nothing is under way, and nobody has to be told anything. *)
IsQuiet ==
    /\ \A pair \in Pairs : link[pair] = "up"
    /\ \A m \in Members :
        /\ work[m] = Idle /\ ~Searches(m) /\ disk[m].given = 0 /\ disk[m].older = {}
        /\ \A n \in Members : wire[m][n] = <<>>

OnePlaceWhenQuiet == IsQuiet => Cardinality({m \in Members : disk[m] # Nothing}) <= 1

EveryoneIsAnswered == \A m \in Members : Waits(m) ~> ~Waits(m)

(* Nobody has to be told anything, and no session is between two members. *)
EverythingIsSettled ==
    <>[](\A m \in Members : disk[m].older = {} /\ disk[m].given = 0 /\ ~Searches(m))
=============================================================================
