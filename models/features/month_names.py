"""Names of the months in twenty languages, in full and short, alone and in a date: small letters, no accents.

Made of Unicode's CLDR by tests/helpers/month_names.py.
"""

MONTHS = (
    "ene enero gen gennaio ian ianuarie jaenner jan janeiro janner januar januara januari january janv "
    "janvier led leden ledna oca ocak sty styczen stycznia tammi tammikuu tammikuuta ιαν ιανουαριοσ "
    "ιανουαριου січ січень січня янв январь января",
    "feb febbraio febr febrero februar februara februari februarie february fev fevereiro fevr fevrier helmi "
    "helmikuu helmikuuta lut lutego luty sub subat uno unor unora φεβ φεβρουαριοσ φεβρουαριου лют лютии "
    "лютого февр февраль февраля",
    "bre brezen brezna maalis maaliskuu maaliskuuta maart maerz mar marc marca march marcius marco marec mars "
    "mart martie marts marz marzec marzo mrt mrz μαρ μαρτιοσ μαρτιου бер березень березня мар март марта",
    "abr abril apr april aprila aprile aprilie aprilis avr avril dub duben dubna huhti huhtikuu huhtikuuta "
    "kwi kwiecien kwietnia nis nisan απρ απριλιοσ απριλιου апр апрель апреля квіт квітень квітня",
    "kve kveten kvetna mag maggio mai maio maj maja majus may mayis mayo mei touko toukokuu toukokuuta μαι "
    "μαιοσ μαιου маи мая трав травень травня",
    "cerven cervna cvn cze czerwca czerwiec giu giugno haz haziran iun iunie juin jun juna june junho juni "
    "junio junius kesa kesakuu kesakuuta ιουν ιουνιοσ ιουνιου июн июнь июня черв червень червня",
    "cervence cervenec cvc heina heinakuu heinakuuta iul iulie juil juill juillet jul jula julho juli julio "
    "julius july lip lipca lipiec lug luglio tem temmuz ιουλ ιουλιοσ ιουλιου июл июль июля лип липень липня",
    "ago agosto agu agustos aout aug august augusta augusti augustus augusztus elo elokuu elokuuta sie "
    "sierpien sierpnia srp srpen srpna αυγ αυγουστοσ αυγουστου авг август августа серп серпень серпня",
    "eyl eylul sep sept september septembra septembre septembrie septiembre set setembro setiembre settembre "
    "syys syyskuu syyskuuta szept szeptember wrz wrzesien wrzesnia zar zari σεπ σεπτεμβριοσ σεπτεμβριου вер "
    "вересень вересня сент сентябрь сентября",
    "eki ekim loka lokakuu lokakuuta oct october octobre octombrie octubre okt oktober oktobra ott ottobre "
    "out outubro paz pazdziernik pazdziernika rij rijen rijna οκτ οκτωβριοσ οκτωβριου жовт жовтень жовтня окт "
    "октябрь октября",
    "kas kasim lis listopad listopada listopadu marras marraskuu marraskuuta noiembrie nov november novembra "
    "novembre novembro noviembre νοε νοεμβριοσ νοεμβριου лист листопад листопада нояб ноябрь ноября",
    "ara aralik dec december decembra decembre decembrie des desember dez dezember dezembro dic dicembre "
    "diciembre gru grudnia grudzien joulu joulukuu joulukuuta pro prosince prosinec δεκ δεκεμβριοσ δεκεμβριου "
    "груд грудень грудня дек декабрь декабря",
)
