"""The closed classes of English words, and other lists, that tell the readings of a homograph apart."""

from __future__ import annotations

from melforge.common.text.english.word_parts import words

MODALS = words("""will would can could shall should may might must do does did cannot don't doesn't didn't
    won't wouldn't can't couldn't shan't shouldn't mustn't let's please i'll you'll he'll she'll it'll we'll
    they'll i'd you'd he'd she'd we'd they'd gonna wanna dare dared needn't""")
SUBJECTS = words("i you we they who")
BE = words("""be am is are was were been being i'm you're he's she's it's we're they're that's isn't aren't
    wasn't weren't there's who's what's""")
HAVE = words("""have has had having i've you've we've they've haven't hasn't hadn't he's she's it's who've
    could've would've should've might've""")
DETERMINERS = words("""a an the this that these those my your his her its our their whose each every either
    neither some any no another other such what which more most less many several few all both own same one
    two three four five six seven eight nine ten first second third last next new old great good""")
PREPOSITIONS = words("""of in on at by for from with without into onto upon under over about against
    between among through during after before behind beyond near per via despite toward towards within as than
    like""")
ADVERBS = words("""not also never always ever even only again then thus first still just often soon now
    later finally long best better easily really rather either already actually both sometimes seldom twice
    once perhaps maybe together""")
NO_ADVERBS = words("""family assembly supply reply ally rally italy july sicily anomaly monopoly butterfly
    fly belly bully jelly lily emily molly sally billy kelly kimberly beverly""")
OBJECTS = words("the a an his her its my your our their it them him us me this these those all each")
# Before "to": what follows the pair is a thing, not an action.
TO_A_THING = words("""prior due subject respect regard as relation addition according access opposed
    objection back close next""")
HABITUAL = words("""i you he she it we they there who which that people everyone everybody nobody get gets
    got getting become became becomes becoming never""")
SELVES = words("themselves ourselves yourselves")
HELPING = words("help helps helped helping")
# At the head of a sentence these call for something to be done.
IMPERATIVES = words("""use insert conduct construct refill transfer convert extract reject combine discard
    export upgrade update reset replay rewrite""")
# They begin a clause that has a verb of its own: "as the pressure increases".
SUBORDINATORS = words("""as when if while where until because although though since before after whether how
    that but and""")
PAST_SIGNS = words("yesterday ago last then was were had did once when after said went came took told")
# A clause ends before these, and what stands behind them says nothing of the clause before.
CLAUSE_WORDS = words("""that which who whom whose when where while if because although though as and but or
    so than whether since until before after how why what unless""")
_PAST_FORMS = words("""was were had did went came took told said made got gave found knew thought became
    left felt put brought began kept held wrote stood heard let meant set met ran paid sat spoke lay led
    read grew lost fell sent built understood drew broke spent cut rose drove bought wore chose saw won sold
    caught taught threw drank ate flew hit hurt shot sang swam stole struck swore tore woke shook hid froze
    forgot fought bore bit bent beat slept swept laid hung""")
# Verbs in -s that are hardly ever plurals: "the shop sells perfume".
VERBS_IN_S = words("""sells writes contains includes requires provides becomes brings keeps gets goes comes
    knows thinks sees wears eats drinks sings teaches publishes receives performs creates begins allows
    follows describes explains believes serves enjoys prefers loses owns earns grows builds carries sends
    speaks tells meets pays sits stands leads tries seeks suffers uses remains belongs features involves
    represents lacks manufactures makes gives takes says lies""")
FINITE = MODALS | BE | VERBS_IN_S | _PAST_FORMS
FINITE |= words("""have has haven't hasn't hadn't i've you've we've they've seems means shows""")
PERSONS = words("i you he she it we they")
PLURALS = words("""al people men women children police cattle feet teeth mice geese many most some others few
    both several these those none""")
# In -s, and no plural; or mostly before another noun: "a sports record", "sales contracts".
NO_PLURALS = words("""always perhaps sometimes besides towards afterwards thanks yes news sales sports arms
    goods customs savings earnings rights systems operations communications athletics politics economics
    physics mathematics series means versus it's that's what's he's she's there's let's here's who's times
    miles dollars percent pounds needs wants texas kansas arkansas paris charles james thomas jones williams
    davis harris hughes adams lewis""")
SINGULAR_MARKS = words("a an this that each every another his her its my your our their one")
CAUSES = words("""let lets make makes made help helps helped see saw watch watched hear heard have had
    watching seeing letting making helping""")
THEM = words("him them us me her it you people everyone anyone")
ANYONE = words("anyone anybody everyone everybody someone somebody nobody people he she it they we you i")
CLOSED = MODALS | SUBJECTS | BE | HAVE | DETERMINERS | PREPOSITIONS | ADVERBS
CLOSED |= words("he she it to and")
ADJECTIVES = words("""present subject separate perfect close deliberate appropriate moderate live
    approximate frequent intimate elaborate alternate compact content""")
NEVER_BEHIND = words("close alternate deliberate elaborate moderate")  # no adjective behind its noun
COUNTING = words("""a an this that every each another last first next per any one two three four five six
    seven eight nine ten fifteen twenty thirty forty fifty sixty ninety hundred half final extra""")
NUMBERS = words("""eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty
    thirty forty fifty sixty seventy eighty ninety hundred thousand million billion dozen""")
INTRANSITIVE = words("""increases decreases contracts conflicts progresses protests rebels refuses objects
    converts""")
PLACE_PREPOSITIONS = words("in from to near at through via")
# Verbs of a plural that is a noun: "court records show".
SHOWING = words("""show place range list indicate suggest reveal say tell prove include contain remain
    exist continue appear seem become vary differ belong consist describe state expire fell rose""")
HELPS = words("let lets make makes made help helps helped helping watch watched making letting")
BOTH_WAYS = words(
    "read put set cut hit let led left found means shot saw lay shows says makes takes gives is"
)
ASKING = words("do does did don't doesn't didn't can could will would should may might must can't won't")
ASKING_ALIKE = words("do does did let's please")
QUANTITIES = words("many several some such no more most much both enough little")
LY_ADJECTIVES = words("""early daily weekly monthly yearly quarterly hourly likely unlikely friendly
    only elderly costly deadly lively lonely lovely orderly timely ugly silly holy""")
AL_NOUNS = words("""trial animal hospital journal festival arrival approval proposal removal survival
    cathedral canal deal meal goal appeal coral medal metal signal pedal scandal admiral mural funeral
    mineral""")
QUESTION_WORDS = words("how why what where when who whom which and but so then")
LINKS = words("of in at from for on with near")
DAYS = words("today yesterday tomorrow tonight here there enough")
REACH = 12  # words; a clause is looked at no further
AFTER_IMPERATIVE = words("the a your my it them up each all")
