"""The closed classes of English words, and verbs that are easily told, for rules that look at a neighbour."""

from __future__ import annotations

from melforge.common.text.english.word_parts import words

_MODALS = words("""will would can could shall should may might must do does did cannot don't doesn't didn't
    won't wouldn't can't couldn't shan't shouldn't mustn't let's please i'll you'll he'll she'll it'll we'll
    they'll i'd you'd he'd she'd we'd they'd gonna wanna dare dared needn't""")
_SUBJECTS = words("i you we they who")
_BE = words("""be am is are was were been being i'm you're he's she's it's we're they're that's isn't aren't
    wasn't weren't there's who's what's""")
_HAVE = words("""have has had having i've you've we've they've haven't hasn't hadn't he's she's it's who've
    could've would've should've might've""")
DETERMINERS = words("""a an the this that these those my your his her its our their whose each every either
    neither some any no another other such what which more most less many several few all both own same one
    two three four five six seven eight nine ten first second third last next new old great good""")
PREPOSITIONS = words("""of in on at by for from with without into onto upon under over about against
    between among through during after before behind beyond near per via despite above below across along
    inside outside toward towards within as than like""")
_ADVERBS = words("""not also never always ever even only again then thus first still just often soon now
    later finally long best better easily really rather either already actually both sometimes seldom twice
    once perhaps maybe together""")
CLOSED = _MODALS | _SUBJECTS | _BE | _HAVE | DETERMINERS | PREPOSITIONS | _ADVERBS
CLOSED |= words("he she it to and")
_VERBS_IN_S = words("""sells writes contains includes requires provides becomes brings keeps gets goes comes
    knows thinks sees wears eats drinks sings teaches publishes receives performs creates begins allows
    follows describes explains believes serves enjoys prefers loses owns earns grows builds carries sends
    speaks tells meets pays sits stands leads tries seeks suffers uses remains belongs features involves
    represents lacks manufactures makes gives takes says lies departs arrives leaves lands boards""")
_PAST_FORMS = words("""was were had did went came took told said made got gave found knew thought became
    left felt put brought began kept held wrote stood heard let meant set met ran paid sat spoke lay led
    read grew lost fell sent built understood drew broke spent cut rose drove bought wore chose saw won sold
    caught taught threw drank ate flew hit hurt shot sang swam stole struck swore tore woke shook hid froze
    forgot fought bore bit bent beat slept swept laid hung""")
FINITE = _MODALS | _BE | _VERBS_IN_S | _PAST_FORMS
FINITE |= words("""have has haven't hasn't hadn't i've you've we've they've seems means shows""")
